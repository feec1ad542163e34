"""The program around a solution that is judged: what it may use without importing it, and how its result is shown.

Solutions of the contests are written for judges that import half the standard library for them (`List` in a signature,
`heappush` without its module), so the names are put there. The solution is compiled as a file of its own, with its own
line numbers, and stdin is its alone unless a function is to be called. The names are beside the built-in ones: what
is in the solution's own space is its own, so that no `add` of a library is called in place of one it forgot to write.
A solution that is called is a module that can be found: a dataclass looks there for what its annotations name.

The solution is in the program as readable text, line by line: sandboxes look there for what a run will import.

The marker separates a call's result from whatever the solution prints. It is no secret: who prints a result himself
still has to print the right one, which this program does not know.
"""

from __future__ import annotations

import re

_SPECIAL = re.compile(r'[\\"\r\0\ud800-\udfff]')

_SHARED = """\
import importlib, json, sys, types
modules = (
    "string re datetime collections heapq bisect copy math random statistics itertools functools operator io sys json "
    "builtins typing"
).split()
names = dict(vars(sys.modules["builtins"]))
for module in map(importlib.import_module, modules):
    public = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    names.update((name, getattr(module, name)) for name in public)
names.update((name, sys.modules[name]) for name in modules)
sys.setrecursionlimit(50_000)
solution = compile(%(solution)s, "solution.py", "exec")
"""

_PROGRAM = """\
exec(solution, {"__builtins__": names, "__name__": "__main__"})
"""

_CALL = """\
question = json.loads(sys.stdin.read())
dumps = json.dumps
module = sys.modules["solution"] = types.ModuleType("solution")
space = vars(module)
space["__builtins__"] = names
exec(solution, space)
owner = space.get("Solution")
function = getattr(owner(), %(entry)r) if hasattr(owner, %(entry)r) else space[%(entry)r]
result = function(*question["args"], **question["kwargs"])
def as_json(value):
    if isinstance(value, (set, frozenset)):
        raise TypeError("a set has no order, so it is no list")
    return value.tolist() if hasattr(value, "tolist") else list(value)
result = dumps(result, default=as_json)
sys.stdout.write("\\n" + %(marker)r + result + "\\n")
"""


def whole_program(solution: str) -> str:
    """Runs a solution that reads stdin and prints."""
    return _SHARED % {"solution": literal(solution)} + _PROGRAM


def one_call(solution: str, entry: str, marker: str) -> str:
    """Calls a solution's function with the arguments on stdin, and prints the marker and the result as JSON."""
    return _SHARED % {"solution": literal(solution)} + _CALL % {"entry": entry, "marker": marker}


def literal(text: str) -> str:
    """A Python literal of a text that keeps its lines as lines, the first one too."""
    return '"""\\\n' + _SPECIAL.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + '"""'

"""Finds the traceback that a text ends with, and its exception.

Python's own, with frames as `  File "…", line …`, and IPython's, with `Cell In[…]` and arrows; chained ones are one
ending. Terminals' colours are looked through. Some tools show only a traceback's last line, or only its message: that
is found by `ending_error`, and `is_of_interpreter` says whether the program itself may have printed it."""

from __future__ import annotations

import ast
import builtins
import re

from cleaner_rl.tools import ExceptionInfo

FIRST_WORDS = "Traceback (most recent call last)"
COLOUR = re.compile(r"\x1b\[[\d;]*m")
TRACEBACK = re.compile(
    r"^(?:-{10,}\n)?(?: *[+|] )?(?:Exception Group |[A-Z]\w+ +)?Traceback \(most recent call last\).*\n?", re.MULTILINE
)
SYNTAX_FRAME = re.compile(r"^ *(?:File \"[^\"\n]*\"|Cell In ?\[\d+\]), line \d+\n(?: .*\n)+", re.MULTILINE)
"""What a syntax error shows: no first line, one frame."""
LAST_LINE = re.compile(
    r"^(?P<type>(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*)?"
    r"(?:Error|Exception|Exit|Interrupt|Warning|Iteration|Group|Fault|Timeout|Expired)|(?:[A-Za-z_]\w*\.)+[A-Z]\w*)"
    r"(?:: ?(?P<message>.*))?$"
)
REPR = re.compile(r"^(?P<type>[A-Z]\w*(?:Error|Exception|Interrupt))\((?P<message>.*)\)$")
"""An exception as `repr` shows it: some tools return nothing else."""
GROUP_END = re.compile(r"^ +\+-{10,}$")
"""The last line of a traceback of an exception group, which has bars before its lines."""
BAR = re.compile(r"^ +\| ?")
HEAD = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?:: ?(?P<message>.*))?$")
"""The same right behind frames, where anything that can be a name is one."""
FRAMES = re.compile(r"^(?: |File |Cell In|Input In|-+>|\[\.\.\.|\Z)")
"""Lines between a traceback's first and last: they are indented, but for IPython's."""
BEFORE_ERROR = re.compile(
    r"(?:\[(?:stderr|error)\]:? *|(?:\w+ ){0,5}(?:error|failed|failure|exception)(?: \w+){0,5}[:!] *)+", re.IGNORECASE
)
"""What a tool may write before an exception's line: `Error: `, `Execution failed: `, `Error executing code: `."""
MESSAGES = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("NameError", r"name '\w+' is not defined"),
        ("ModuleNotFoundError", r"No module named '[\w.]+'"),
        ("ImportError", r"cannot import name '\w+' from "),
        ("AttributeError", r"(?:'[\w.]+' object|module '[\w.]+'|type object '[\w.]+') has no attribute '\w+'"),
        ("ZeroDivisionError", r"(?:float )?(?:division|modulo|division or modulo)(?: or modulo)? by zero$"),
        ("IndexError", r"(?:list|tuple|string|pop)(?: assignment)? (?:index|from empty)"),
        (
            "ValueError",
            r"invalid literal for int\(\)|could not convert string to float|(?:too many|not enough) values to",
        ),
        ("FileNotFoundError", r"\[Errno 2\] No such file or directory: "),
        (
            "SyntaxError",
            r"invalid syntax|'.' was never closed|unterminated .*string literal|unmatched '.'|expected ':'",
        ),
        ("IndentationError", r"unexpected indent|expected an indented block|unindent does not match"),
        (
            "TypeError",
            r"unsupported operand type|can only concatenate|'[\w.]+' object (?:is not|cannot be) |'..?' not supported"
            r"|[\w.]+\(\) (?:got an |missing |takes )",
        ),
    )
)
"""The interpreter's own messages, by which an exception is known whose type a tool doesn't show."""
COMMAND = re.compile(r"^\s*[!%]", re.MULTILINE)
OTHERS_WORDS = re.compile(
    r"\b(?:except|traceback|exc_info|suppress|exec|eval|subprocess|system|popen|Popen|open|read\w*|requests|httpx|url\w*"
    r"|logging|logger|warn\w*|stderr|stdout|input|recv|fetch\w*|execute|\w*(?:Error|Exception)s?)\b|^\s*[!%]",
    re.MULTILINE,
)
"""Words of a program that handles exceptions, or prints what others wrote: it may print an error's line itself."""
NAMING = frozenset(
    {
        *("NameError", "UnboundLocalError", "AttributeError", "ImportError", "ModuleNotFoundError", "KeyError"),
        "FileNotFoundError",
    }
)
"""Exceptions whose messages name what wasn't there."""
UNREAD = frozenset({"SyntaxError", "IndentationError", "TabError"})
_QUOTED = re.compile(r"'([^']+)'")
CHAINED = ("During handling of the above exception", "direct cause of the following exception")


def ending_traceback(text: str) -> tuple[int, ExceptionInfo] | None:
    """Return where the traceback begins that a text ends with, and its exception; None if there is none."""
    coloured, text = text, plain(text)
    if FIRST_WORDS not in text and ", line " not in text:
        return None  # nearly all texts, in a fraction of the time
    matches = list(TRACEBACK.finditer(text)) or list(SYNTAX_FRAME.finditer(text))
    if not matches:
        return None
    start = matches[-1].start()
    for earlier in (match.start() for match in reversed(matches[:-1])):
        if not any(words in text[earlier:start] for words in CHAINED):
            break
        start = earlier
    found = _exception(text[matches[-1].end() :].rstrip().splitlines())
    return None if found is None else (_place(coloured, start), found)


def ending_error(text: str) -> tuple[int, ExceptionInfo] | None:
    """Return where the last line begins, and the exception that it names without a traceback; None if it names none."""
    stripped = plain(text).rstrip()
    line = stripped.rpartition("\n")[2].strip()
    start = len(text.rstrip().rpartition("\n")[0])
    before = BEFORE_ERROR.match(line)
    for said in (line[before.end() :], line) if before else (line,):
        found = LAST_LINE.match(said)
        if found and not found["type"].endswith("Warning"):
            return start, ExceptionInfo(found["type"], found["message"] or "")
        if found := REPR.match(said):
            return start, ExceptionInfo(found["type"], _shown(found["type"], found["message"]))
        kind = next((kind for kind, pattern in MESSAGES if pattern.match(said)), None)
        if kind is not None:
            return start, ExceptionInfo(kind, said)
    return None


def _shown(kind: str, arguments: str) -> str:
    """Return the message of an exception that was made with these arguments; of a `KeyError` it is in quotes."""
    try:
        value = ast.literal_eval(arguments)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return arguments
    return value if isinstance(value, str) and kind != "KeyError" else arguments


def is_of_interpreter(error: ExceptionInfo, program: str) -> bool:
    """Return whether an error's line that ends a text is the interpreter's: the program can't have printed it.

    It can't if it could not even be read; a notebook's cell with commands is no Python, and may run. It can't either if
    it handles no exception, prints nothing of others, and the message names a word of the program, or the program uses
    nothing that came from elsewhere.
    """
    try:
        tree = ast.parse(program)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return error.type in UNREAD and COMMAND.search(program) is None
    if not isinstance(getattr(builtins, error.type, None), type) or OTHERS_WORDS.search(program):
        return False
    if error.type in NAMING:
        return any(re.search(rf"(?<!\w){re.escape(each)}(?!\w)", program) for each in _QUOTED.findall(error.message))
    return _is_closed(tree)


def _is_closed(tree: ast.Module) -> bool:
    """Return whether a program reads no name but its own and the language's."""
    own = set(dir(builtins))
    read: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else own).add(node.id)
        elif isinstance(node, ast.arg):
            own.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            own.add(node.name)
        elif isinstance(node, ast.alias):
            own.add((node.asname or node.name).partition(".")[0])
    return read <= own


def plain(text: str) -> str:
    """Return a text without its colours."""
    return COLOUR.sub("", text) if "\x1b" in text else text


def _place(text: str, start: int) -> int:
    """Return where a character of the plain text is in the coloured one."""
    for colour in COLOUR.finditer(text):
        if colour.start() >= start:
            break
        start += len(colour[0])
    return start


def _exception(lines: list[str]) -> ExceptionInfo | None:
    """Return the exception of a traceback that goes on with these lines, if they are all of it."""
    if lines and GROUP_END.match(lines[-1]):
        bare = (HEAD.match(BAR.sub("", line)) for line in lines if BAR.match(line))
        head = next((found for found in bare if found is not None), None)
        return None if head is None else ExceptionInfo(head["type"], head["message"] or "")
    for index, line in enumerate(lines):
        if FRAMES.match(line):
            continue
        head = HEAD.match(line)
        if head is None:
            return None
        message = head["message"] or ""
        further = lines[index + 1 :]
        if further and not _goes_on(head["type"], message, further):
            return None
        return ExceptionInfo(head["type"], "\n".join([message, *further]))
    return None


def _goes_on(kind: str, message: str, further: list[str]) -> bool:
    """Return whether lines behind an exception's line belong to it: its message goes on, or they are indented."""
    if message.rstrip().endswith((":", ",", "(", "[", "{")) or kind.endswith("Group"):
        return True
    return all(line.startswith((" ", "\t")) for line in further if line.strip())

"""Whether a Python program may stand for one that failed.

Its exception has to be one that a mistake in the program raises, and not one that tells something of the data, the
machine or the code under test. The correction has to be about the same things: the same values but for slips, most of
the names, no more branches and no new effects. Where nobody replays the result, nothing that the failed program did
before it failed may be lost (`effects`).
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Collection
from functools import lru_cache
from typing import TypeAlias

from cleaner_rl.logs.warrant.effects import (
    ReadsLater,
    all_bound_names,
    bound_names,
    called,
    effects,
    lost_state,
    missing_names,
    unbound_reads,
)
from cleaner_rl.logs.warrant.nodes import kept, nodes, nodes_of
from cleaner_rl.logs.warrant.reasons import Unwarranted
from cleaner_rl.logs.warrant.texts import lost_and_new, misspelt, same_path, same_words, words
from cleaner_rl.logs.warrant.words import DENIAL, LIMIT

WasGiven: TypeAlias = Callable[[str], bool]
"""Says whether a number or a word is in the task or in what tools had said before."""
ANY = "*"
"""Stands for every name, where nobody knows which ones a program reads."""
COVERED = 0.6
"""Of the failed program's words, the share that has to come again."""
SYNTAX_COVERED = 0.9
"""The same share for a program that could not be read: there a slip changes little."""
WRONG_OPERATORS = {
    "BitXor": re.compile(r"unsupported operand type\(s\) for \^"),
    "Div": re.compile(r"'float' object cannot be interpreted as an integer|indices must be integers"),
}
INITIAL = frozenset({"0", "0.0", "1", ""})
"""Values that a variable begins with, and which nobody has to give."""
CONVERSIONS = frozenset(
    {
        *("str", "int", "float", "bool", "list", "tuple", "dict", "bytes", "repr", "iter", "enumerate", "range", "zip"),
        *("len", "print", "open", "read", "read_text", "read_bytes", "items", "keys", "values", "encode", "decode"),
        *("tolist", "to_list", "to_numpy", "to_datetime", "to_numeric", "astype", "array", "asarray", "item", "copy"),
    }
)
"""Calls that give the same in another form."""
PART_OPTIONS = frozenset({"nrows", "skiprows", "usecols", "limit", "maxsplit", "where", "query", "how", "filters"})
UNREAD = frozenset({"SyntaxError", "IndentationError", "TabError"})
MISSING_NAME = frozenset({"NameError", "UnboundLocalError", "ImportError", "ModuleNotFoundError"})
MISTAKES = frozenset(
    {
        *(*UNREAD, *MISSING_NAME, "AttributeError", "TypeError", "KeyError", "IndexError", "ValueError"),
        *("FileNotFoundError", "NotADirectoryError", "IsADirectoryError", "UnicodeDecodeError", "JSONDecodeError"),
        *("UFuncTypeError", "MissingSchema", "InvalidURL", "InvalidSchema", "UndefinedVariableError", "SympifyError"),
        *("MergeError", "InvalidIndexError", "SpecificationError", "OperationalError", "ProgrammingError", "error"),
        *("FrozenInstanceError", "UnsupportedOperation", "OutOfBoundsDatetime", "ParseException", "BinderException"),
    }
)
"""Exceptions that a mistake in a program raises. Any other is a finding: nobody knows what it is about."""
DENIED = frozenset(
    {
        *("PermissionError", "TimeoutError", "MemoryError", "RecursionError", "ConnectionError", "KeyboardInterrupt"),
        *("ConnectionRefusedError", "ConnectionResetError", "SSLError", "HTTPError", "URLError", "ReadTimeout"),
        *("ConnectTimeout", "RateLimitError", "TimeoutExpired", "AuthenticationError", "gaierror", "OSError"),
    }
)
BYPASS = re.compile(
    r"""except\s*(?:\(?(?:Base)?Exception\)?(?:\s+as\s+\w+)?)?\s*:\s*(?:\#.*)?\s*(?:pass|continue|\.\.\.|print)
      | suppress\(\s*(?:Base)?Exception | verify\s*=\s*False | errors\s*=\s*["'](?:ignore|coerce|replace)
      | on_bad_lines\s*=\s*["']skip | check\s*=\s*False | (?:simple)?filter(?:warnings)?\(\s*["']ignore
      | shell\s*=\s*True | _create_unverified_context | allow_pickle\s*=\s*True | 0o777 | sudo\b | setrecursionlimit
      | set_int_max_str_digits | strict\s*=\s*False | validate\s*=\s*False | low_memory""",
    re.VERBOSE,
)
COMMAND = re.compile(r"^[ \t]*[!%]", re.MULTILINE)
"""A line that a notebook takes for a command of the shell, or of its own."""
FINDING = re.compile(r"\bFAILED\b|\b\d+ failed\b")
_LAST_LINE = re.compile(r"^(?:[\w.]+\.)?([A-Za-z_]\w*)(?:: .*)?$")
_FRAME = re.compile(r'File "(/[^"\n]+)", line \d+')
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python\d|^/tmp/|ipykernel|<frozen|^/usr/lib/")
_FRAMES = re.compile(r'Traceback \(most recent|File "|Cell In|^-+> \d', re.MULTILINE)
_QUOTED = re.compile(r"'([^']+)'")
_NO_MODULE = re.compile(r"No module named '([\w.]+)'")
_OWN_LINE = re.compile(r'File "<[^>\n]*>", line (\d+)|Cell In\[?\d*\]?, line (\d+)|^-+> (\d+) ', re.MULTILINE)


def nothing_given(_: str) -> bool:
    """Say that a value had not been given: nobody knows what the model had read."""
    return False


def python_refusal(
    failed: str,
    correction: str,
    told: str,
    reads_later: ReadsLater,
    *,
    lasting: bool,
    absent: Collection[str] = (),
    was_given: WasGiven = nothing_given,
) -> Unwarranted | None:
    """Return why one program may not stand for another that failed with the words `told`; None if it may.

    Args:
        failed: The program that failed.
        correction: The one that is to take its place.
        told: What the tool said of the failure.
        reads_later: Says whether a program after the correction may read one of some names.
        lasting: Whether what a failed program left behind lasts, and nobody checks by a replay that it wasn't needed.
        absent: Names that were not there, where the message says it in another way than the interpreter.
        was_given: Says whether the model had been given a number before it wrote the program.
    """
    raised = exception_type(told)
    if (reason := _no_mistake(raised, told)) is not None:
        return reason
    if {_plain(each) for each in BYPASS.findall(correction)} - {_plain(each) for each in BYPASS.findall(failed)}:
        return Unwarranted.BYPASS
    after = _tree(correction)
    if after is None:
        return Unwarranted.UNREADABLE
    before = _tree(failed)
    if before is None:
        # The interpreter reads a program before it runs any of it. But a cell with commands isn't Python, and may have
        # run: then the error is of something else.
        unread = raised in UNREAD and not COMMAND.search(failed)
        return _unread_refusal(failed, correction, after) if unread else Unwarranted.UNREADABLE
    if raised == "ValueError" and any(each not in failed for each in _QUOTED.findall(_last_line(told))):
        return Unwarranted.FINDING  # a value of the data
    if not _FRAMES.search(told) and not _is_own(
        raised, before, failed, {*missing_names(told), *_NO_MODULE.findall(told), *absent}
    ):
        return Unwarranted.FINDING
    if raised == "ModuleNotFoundError" and not _is_misspelt_module(told, after):
        return Unwarranted.FINDING
    if not _same_program(before, after, told, was_given):
        return Unwarranted.OTHER_PURPOSE
    if raised not in MISSING_NAME and _branches(after) > _branches(before):
        return Unwarranted.BYPASS
    if (doing := effects(after)) and not _did(before, told, doing):
        return Unwarranted.OTHER_PURPOSE
    if lasting and lost_state(before, after, {*missing_names(told), *absent}, _first_line(told), reads_later):
        return Unwarranted.CHANGED
    if _calls_something_else(before, after, told) or _takes_a_part(after) - _takes_a_part(before):
        return Unwarranted.OTHER_PURPOSE
    return None


def _did(before: ast.Module, told: str, doing: Collection[str]) -> bool:
    """Return whether a program was to change what its correction changes, but for slips."""
    done = {*effects(before), *missing_names(told)}
    return all(any(misspelt(each, other) or other.startswith(each) for other in done) for each in doing)


def nothing_reads(_: Collection[str]) -> bool:
    """Say that no later program reads any of some names: there is none."""
    return False


def names_read(program: str) -> Collection[str]:
    """Return the names that a program reads before it has bound them; `ANY` if it can't be parsed."""
    tree = _tree(program)
    return (ANY,) if tree is None else unbound_reads(tree)


def exception_type(told: str) -> str:
    """Return the type of the exception that the last line names, without its module; empty if it names none."""
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    found = _LAST_LINE.match(lines[-1]) if lines else None
    if found is None or (not found.group(1)[0].isupper() and found.group(1) != "error"):
        named = next((line for line in reversed(lines) if re.match(r"[\w.]*(?:Error|Exception|Schema)\b", line)), "")
        found = _LAST_LINE.match(named)
    return found.group(1) if found else ""


def _last_line(told: str) -> str:
    return next((line for line in reversed(told.splitlines()) if line.strip()), "")


def _no_mistake(raised: str, told: str) -> Unwarranted | None:
    """Return why an exception doesn't come from a mistake in the program; None if it may."""
    if raised in DENIED:
        return Unwarranted.DENIED
    if not raised:
        return Unwarranted.DENIED if DENIAL.search(told) or LIMIT.search(told) else Unwarranted.CHANGED
    if raised not in MISTAKES or FINDING.search(told):
        return Unwarranted.FINDING
    # It was raised in somebody's code, which is perhaps what was tried out.
    return Unwarranted.FINDING if any(not _LIBRARY.search(each) for each in _FRAME.findall(told)) else None


def _is_own(raised: str, before: ast.Module, failed: str, missing: Collection[str]) -> bool:
    """Return whether an exception without frames was raised by the program itself, and not by code that it called."""
    if raised in MISSING_NAME or raised == "AttributeError":
        return bool(missing) and all(re.search(rf"\b{re.escape(each)}\b", failed) for each in missing)
    return not effects(before)


def _unread_refusal(failed: str, correction: str, after: ast.Module) -> Unwarranted | None:
    gone, come = lost_and_new(failed, correction)
    total = len(words(failed))
    if len(gone) > (1 - SYNTAX_COVERED) * total or len(come) > max(2, (1 - COVERED) * total):
        return Unwarranted.OTHER_PURPOSE
    known = set(re.findall(r"\w+", failed))
    if any(not any(misspelt(each, other) for other in known) for each in effects(after)):
        return Unwarranted.OTHER_PURPOSE
    return None


def _is_misspelt_module(told: str, after: ast.Module) -> bool:
    missing = {each.partition(".")[0] for each in _NO_MODULE.findall(told)}
    imported = {
        name.partition(".")[0]
        for node in nodes(after)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names])
    }
    return bool(missing) and all(any(misspelt(each, other) for other in imported - missing) for each in missing)


def _same_program(before: ast.Module, after: ast.Module, told: str, was_given: WasGiven) -> bool:
    """Return whether a program has most of the words of another, all of its values, and all of its options."""
    wanted, found = _words(before), _words(after)
    if sum((wanted & found).values()) < COVERED * sum(wanted.values()):
        return False
    if any(not _is_wrong_operator(each, told) for each in _operators(before) - _operators(after)):
        return False
    values, others = _values(before), _values(after)
    for name in (each for each in {*missing_names(told)} if each in wanted):
        if not all(map(was_given, _assigned(after, name) - {*values, *INITIAL})):
            return False
        if not any(_is_name_for(name, other) for other in found):
            numbers = _written_out(before, after, name)
            # A number that nobody had given may be made up.
            if numbers is None or not all(map(was_given, numbers)):
                return False
    gone, come = list((values - others).elements()), list((others - values).elements())
    for each in tuple(gone):
        match = next((other for other in come if _same_value(each, other)), None)
        if match is not None:
            gone.remove(each)
            come.remove(match)
    if gone:
        # What is left may be the same in another type: a list for a text of it.
        if words(" ".join(gone)) != words(" ".join(come)):
            return False
    elif not all(was_given(each) for each in come if each not in INITIAL and words(each)):
        return False  # a value that nobody had given is made up, or asks for something else
    options = _options(before) - _options(after)
    return all(_is_mentioned(each, told) or _is_slip(each, after) for each in options)


def _is_name_for(missing: str, other: str) -> bool:
    """Return whether a name that wasn't there is another one with a slip, or longer or shorter than it is."""
    shorter, longer = sorted((missing.lower().replace("_", ""), other.lower().replace("_", "")), key=len)
    return misspelt(missing, other) or (len(shorter) > 2 and longer.startswith(shorter))


def _written_out(before: object, after: object, name: str) -> list[str] | None:
    """Return the numbers that a program has in the place of a variable that wasn't there; None if more differs."""
    if isinstance(before, ast.Name) and before.id == name:
        is_number = isinstance(after, ast.Constant) and isinstance(after.value, int | float)
        return [ast.unparse(after)] if is_number and isinstance(after, ast.Constant) else None
    if type(before) is not type(after):
        return None
    if isinstance(before, ast.AST) and isinstance(after, ast.AST):
        pairs = [(getattr(before, each), getattr(after, each)) for each in before._fields]
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = list(zip(before, after, strict=True))
    else:
        return [] if before == after else None
    found = [_written_out(*pair, name) for pair in pairs]
    return None if None in found else [number for each in found for number in each or ()]


def _assigned(program: ast.Module, name: str) -> set[str]:
    """Return the numbers and texts of which a program makes a variable."""
    return {
        value
        for statement in program.body
        if isinstance(statement, ast.Assign) and name in bound_names(statement)
        for value in _values(statement)
    }


def _is_slip(option: str, after: ast.Module) -> bool:
    return any(misspelt(option, other) for other in _options(after))


@kept
def _values(tree: ast.AST) -> Counter[str]:
    """Return the texts and numbers of a program, those aside that document it."""
    values: Counter[str] = Counter()
    for node in nodes_of(tree, ast.Constant):
        if node.value is not None and not isinstance(node.value, bool):
            value = node.value
            values[value.decode("latin-1") if isinstance(value, bytes) else str(value)] += 1
    return values


def _same_value(first: str, second: str) -> bool:
    numbers = first.replace(".", "").isdigit() or second.replace(".", "").isdigit()
    if numbers:
        return first == second
    return same_words(first, second) or ("/" in first + second and same_path(first, second))


@kept
def _options(tree: ast.Module) -> set[str]:
    return {node.arg for node in nodes_of(tree, ast.keyword) if node.arg}


@kept
def _operators(tree: ast.Module) -> Counter[str]:
    """Return what a program compares and computes with. (Texts are joined in more ways than by a plus.)"""
    operators: Counter[str] = Counter()
    for comparison in nodes_of(tree, ast.Compare):
        operators.update(type(each).__name__ for each in comparison.ops)
    for node in nodes_of(tree, ast.BinOp):
        if not isinstance(node.op, ast.Add | ast.Mod):
            operators[type(node.op).__name__] += 1
    return operators


def _is_wrong_operator(operator: str, told: str) -> bool:
    """Return whether the exception is about an operator: that of another language, or one that gives another type."""
    return operator in WRONG_OPERATORS and WRONG_OPERATORS[operator].search(_last_line(told)) is not None


def _calls_something_else(before: ast.Module, after: ast.Module, told: str) -> bool:
    """Return whether a program makes other calls than one that failed, but for slips and for other forms of a value.

    One more call may take a part of something (`head`) or count it in another way (`unique`). What makes a name that
    wasn't there is free, and so is what made one that is still read.
    """
    made = _calls(before.body, unbound_reads(after) - all_bound_names(after))
    making = _calls(after.body, {*missing_names(told)})
    lost, added = made - making, making - made
    del lost["print"]  # a notebook shows the last value without it
    if not all(_is_mentioned(each, told) or any(misspelt(each, other) for other in added) for each in lost):
        return True
    new = [each for each in added.elements() if each not in CONVERSIONS and not each[:1].isupper()]
    return len(new) > lost.total()


def _calls(statements: list[ast.stmt], free: Collection[str]) -> Counter[str]:
    """Return the names of what statements call, but for those that bind one of some names."""
    some = (each for each in statements if not {*bound_names(each)} & {*free})
    return Counter(called(call.func) for each in some for call in nodes_of(each, ast.Call))


@kept
def _takes_a_part(tree: ast.Module) -> Counter[str]:
    """Return what in a program, beside its calls, may leave a part of the data out: slices, conditions and options."""
    options = (node.arg for node in nodes_of(tree, ast.keyword) if node.arg in PART_OPTIONS)
    signs = {kind.__name__: len(nodes_of(tree, kind)) for kind in (ast.Slice, ast.Compare)}
    return Counter(map(str, options)) + Counter(signs)


def _is_mentioned(name: str, told: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", told) is not None


@kept
def _branches(tree: ast.Module) -> int:
    """Return how many ways around something a program has."""
    kinds = (ast.If, ast.IfExp, ast.Try, ast.BoolOp, ast.Continue, ast.Break)
    count = sum(len(nodes_of(tree, kind)) for kind in kinds)
    count += sum(len(node.ifs) for node in nodes_of(tree, ast.comprehension))
    skips = ("get", "dropna", "fillna", "getattr", "setdefault", "isdigit", "isnumeric")
    return count + sum(node.attr in skips for node in nodes_of(tree, ast.Attribute))


def _first_line(told: str) -> int | None:
    """Return the program's own line that the traceback begins with; None if it doesn't tell."""
    lines = [int(next(filter(None, groups))) for groups in _OWN_LINE.findall(told)]
    return lines[0] if lines else None


@kept
def _words(tree: ast.Module) -> Counter[str]:
    """Return names, attributes and constants, each as often as it comes."""
    counted = Counter([node.id for node in nodes_of(tree, ast.Name)])
    counted.update([node.attr for node in nodes_of(tree, ast.Attribute)])
    counted.update([repr(node.value) for node in nodes_of(tree, ast.Constant)])
    for kind in (ast.ImportFrom, ast.Import):
        counted.update(name for node in nodes_of(tree, kind) for name in bound_names(node))
    return counted


def _tree(program: str) -> ast.Module | None:
    try:
        return _parsed(program)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


@lru_cache(512)
def _parsed(program: str) -> ast.Module:
    """Errors are not kept: what is too deep, or too large, depends on who asks."""
    return ast.parse(program)


def _plain(text: str) -> str:
    return "".join(text.split())

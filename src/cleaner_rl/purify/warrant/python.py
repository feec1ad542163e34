"""Whether a Python program may stand for one that failed.

It has to be about the same things: most names, attributes and constants of the failed program come again. Where nobody
replays the result, nothing that the failed program did before it failed may be lost: what it bound and somebody reads
later, what it changed, and what it called that isn't known to change nothing.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache

from cleaner_rl.purify.warrant.reasons import Unwarranted
from cleaner_rl.purify.warrant.texts import alike

COVERED = 0.6
"""Of the failed program's words, the share that has to come again."""
BYPASS = re.compile(
    r"""except\s*(?:\(?(?:Base)?Exception\)?(?:\s+as\s+\w+)?)?\s*:\s*(?:\#.*)?\s*(?:pass|continue|\.\.\.|print)
      | suppress\(\s*(?:Base)?Exception | verify\s*=\s*False | errors\s*=\s*["'](?:ignore|coerce)
      | on_bad_lines\s*=\s*["']skip | check\s*=\s*False | (?:simple)?filter(?:warnings)?\(\s*["']ignore
      | shell\s*=\s*True | _create_unverified_context | allow_pickle\s*=\s*True | 0o777 | sudo\b""",
    re.VERBOSE,
)
FINDING = re.compile(r"^AssertionError\b|\bFAILED\b|\b\d+ failed\b", re.MULTILINE)
PURE_MODULES = frozenset(
    {
        *("math", "cmath", "statistics", "itertools", "functools", "operator", "collections", "re", "json", "string"),
        *("datetime", "decimal", "fractions", "textwrap", "numpy", "np", "pandas", "pd", "sympy", "sp", "scipy"),
        *("stats", "calendar", "bisect", "difflib", "hashlib", "base64", "typing", "dataclasses", "copy", "heapq"),
        *("unicodedata", "zlib", "struct", "enum", "networkx", "nx", "sklearn", "mpmath", "mp", "time", "zoneinfo"),
    }
)
CHANGING = frozenset(
    {
        *("open", "exec", "eval", "input", "setattr", "delattr", "next", "compile", "__import__", "breakpoint"),
        *("append", "extend", "insert", "remove", "pop", "clear", "update", "add", "discard", "setdefault", "popitem"),
        *("write", "writelines", "writerow", "writerows", "execute", "executemany", "commit", "rollback", "close"),
        *("to_csv", "to_json", "to_excel", "to_parquet", "to_sql", "to_pickle", "savefig", "save", "dump", "send"),
        *("post", "put", "delete", "patch", "sort", "reverse", "fit", "fit_transform", "seed", "shuffle", "unlink"),
        *("mkdir", "makedirs", "rename", "rmdir", "touch", "write_text", "write_bytes", "start", "run", "kill"),
    }
)
_OWN_LINE = re.compile(r'File "<[^>\n]*>", line (\d+)|Cell In\[?\d*\]?, line (\d+)|^-+> (\d+) ', re.MULTILINE)
_PURE = frozenset(dir(builtins)) - CHANGING


def python_refusal(
    failed: str, correction: str, told: str, later: Sequence[str], *, lasting: bool
) -> Unwarranted | None:
    """Return why one program may not stand for another that failed with the words `told`; None if it may.

    Args:
        failed: The program that failed.
        correction: The one that is to take its place.
        told: What the tool said of the failure.
        later: Programs that ran after the correction.
        lasting: Whether what a failed program left behind lasts, and nobody checks by a replay that it wasn't needed.
    """
    if FINDING.search(told):
        return Unwarranted.FINDING
    if {_plain(each) for each in BYPASS.findall(correction)} - {_plain(each) for each in BYPASS.findall(failed)}:
        return Unwarranted.BYPASS
    after = _tree(correction)
    if after is None:
        return Unwarranted.UNREADABLE
    before = _tree(failed)
    if before is None:
        # The interpreter reads a program before it runs any of it.
        return None if alike(failed, correction) >= COVERED else Unwarranted.OTHER_PURPOSE
    wanted = _words(before)
    if sum((wanted & _words(after)).values()) < COVERED * sum(wanted.values()):
        return Unwarranted.OTHER_PURPOSE
    return Unwarranted.CHANGED if lasting and _loses(before, after, told, later) else None


def _loses(before: ast.Module, after: ast.Module, told: str, later: Sequence[str]) -> bool:
    ran = _ran(before, told)
    bound = {name for statement in ran for name in _bound(statement)}
    if any(_changes(statement, bound) for statement in ran):
        return True
    lost = bound - {name for statement in after.body for name in _bound(statement)}
    read = _unbound_reads(after.body)
    for program in later:
        tree = _tree(program)
        if tree is None:
            return bool(lost)
        read |= _unbound_reads(tree.body)
    return bool(lost & read)


def _ran(tree: ast.Module, told: str) -> list[ast.stmt]:
    """Return the statements that ran, the one that failed included; all, if the traceback doesn't tell."""
    lines = [int(next(filter(None, groups))) for groups in _OWN_LINE.findall(told)]
    if not lines:
        return tree.body
    return [each for each in tree.body if each.lineno <= lines[0]]


def _changes(statement: ast.stmt, fresh: set[str]) -> bool:
    """Return whether a statement may change more than the names that it binds."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom):
        return False
    for node in ast.walk(statement):
        if isinstance(node, ast.Delete | ast.Global | ast.Await | ast.Yield):
            return True
        if isinstance(node, ast.AugAssign) and _root(node.target) not in fresh:
            return True
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            if _root(node) not in fresh:
                return True
        if isinstance(node, ast.Call) and not _is_pure(node, fresh):
            return True
        if isinstance(node, ast.keyword) and node.arg == "inplace":
            return True
    return False


def _is_pure(call: ast.Call, fresh: set[str]) -> bool:
    function = call.func
    if isinstance(function, ast.Name):
        return function.id in _PURE or (function.id in fresh and function.id not in CHANGING)
    if not isinstance(function, ast.Attribute):
        return False
    root = _root(function)
    return function.attr not in CHANGING or (root in fresh and root not in PURE_MODULES and function.attr in _OF_FRESH)


_OF_FRESH = frozenset(
    {"append", "extend", "insert", "remove", "pop", "clear", "update", "add", "discard", "setdefault", "sort"}
)


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _bound(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name


def _unbound_reads(statements: list[ast.stmt]) -> set[str]:
    """Return the names that are read before the program itself has bound them."""
    bound: set[str] = set()
    read: set[str] = set()
    for statement in statements:
        used = {
            node.id
            for node in ast.walk(statement)
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store)
        }
        own = set(_bound(statement))
        read |= used - bound - (own if isinstance(statement, ast.FunctionDef | ast.For | ast.With) else set())
        bound |= own
    return read


def _words(tree: ast.Module) -> Counter[str]:
    """Return names, attributes and constants, each as often as it comes."""
    words: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            words[node.id] += 1
        elif isinstance(node, ast.Attribute):
            words[node.attr] += 1
        elif isinstance(node, ast.Constant):
            words[repr(node.value)] += 1
    return words


@lru_cache(512)
def _tree(program: str) -> ast.Module | None:
    try:
        return ast.parse(program)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _plain(text: str) -> str:
    return "".join(text.split())

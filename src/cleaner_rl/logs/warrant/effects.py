"""What a Python program leaves behind: names, changed objects, files, and whatever calls do that nobody knows.

A call is taken to change something unless it is known not to: a builtin, a function of a module that only computes, a
method that only looks, or anything that is done to an object which the program itself has made of such things. What a
program writes anew each time that it runs (a file, a column, a seed) is not lost if the correction writes it again.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable, Collection, Iterator
from typing import TypeAlias

from cleaner_rl.logs.warrant.nodes import has, kept, nodes, nodes_of

ReadsLater: TypeAlias = Callable[[Collection[str]], bool]
"""Says whether a program that comes later may read one of some names."""
PURE_MODULES = frozenset(
    {
        *("math", "cmath", "statistics", "itertools", "functools", "operator", "collections", "re", "json", "string"),
        *(
            "datetime",
            "decimal",
            "fractions",
            "textwrap",
            "numpy",
            "pandas",
            "sympy",
            "scipy",
            "sklearn",
            "statsmodels",
        ),
        *("calendar", "bisect", "difflib", "hashlib", "base64", "typing", "dataclasses", "copy", "heapq", "pprint"),
        *("unicodedata", "zlib", "struct", "enum", "networkx", "mpmath", "time", "zoneinfo", "glob", "polars", "csv"),
        *("abc", "random", "uuid", "html", "urllib.parse", "os.path", "pathlib", "fnmatch", "numbers", "types", "ast"),
        *("inspect", "sys", "platform", "yaml", "tomllib", "textwrap", "shlex", "array", "io", "tabulate", "dateutil"),
    }
)
"""They compute, or look at the machine. Their functions that do more are in `OUTWARD`."""
OUTWARD = frozenset(
    {
        *("exec", "eval", "input", "setattr", "delattr", "compile", "__import__", "breakpoint", "next", "exit", "quit"),
        *("write", "writelines", "writerow", "writerows", "executemany", "executescript", "commit", "rollback"),
        *("to_csv", "to_json", "to_excel", "to_parquet", "to_sql", "to_pickle", "to_feather", "to_html", "to_hdf"),
        *("savefig", "save", "savez", "savetxt", "tofile", "dump", "send", "post", "put", "delete", "patch", "request"),
        *("unlink", "mkdir", "makedirs", "rename", "replace_file", "rmdir", "rmtree", "touch", "write_text", "chmod"),
        *("write_bytes", "start", "run", "kill", "system", "popen", "Popen", "call", "check_call", "check_output"),
        *("seed", "shuffle", "setstate", "simplefilter", "filterwarnings", "set_option", "set_printoptions", "exit"),
        *(
            "copyfile",
            "copytree",
            "move",
            "upload",
            "download",
            "urlretrieve",
            "publish",
            "submit",
            "set_index_inplace",
        ),
    }
)
"""They change something outside of the program's own objects, or the state of a module."""
MUTATORS = frozenset(
    {
        *("append", "extend", "insert", "remove", "pop", "clear", "update", "add", "discard", "setdefault", "popitem"),
        *("sort", "reverse", "appendleft", "popleft", "rotate", "subtract", "fit", "fit_transform", "partial_fit"),
    }
)
OVERWRITES = frozenset(
    {
        *("open", "write", "writelines", "writerow", "writerows", "dump", "to_csv", "to_json", "to_excel", "savefig"),
        *("to_parquet", "to_pickle", "write_text", "write_bytes", "savetxt", "seed", "save", "savez"),
    }
)
"""Done again they leave the same: a file is written from its beginning, a generator starts from its seed."""
LOOKING = frozenset(
    {
        *dir(str),
        *(
            "get",
            "keys",
            "values",
            "items",
            "copy",
            "head",
            "tail",
            "describe",
            "groupby",
            "merge",
            "mean",
            "sum",
            "agg",
        ),
        *(
            "std",
            "var",
            "median",
            "min",
            "max",
            "nunique",
            "unique",
            "value_counts",
            "sort_values",
            "sort_index",
            "loc",
        ),
        *("iloc", "apply", "map", "astype", "isna", "notna", "dropna", "fillna", "reset_index", "set_index", "corr"),
        *(
            "tolist",
            "to_dict",
            "to_string",
            "to_numpy",
            "to_list",
            "reshape",
            "transpose",
            "dot",
            "all",
            "any",
            "round",
        ),
        *(
            "quantile",
            "cumsum",
            "diff",
            "shift",
            "rolling",
            "resample",
            "pivot_table",
            "pivot",
            "melt",
            "stack",
            "query",
        ),
        *("filter", "isin", "between", "clip", "abs", "rank", "sample", "nlargest", "nsmallest", "idxmax", "idxmin"),
        *("drop", "rename", "assign", "join", "explode", "unstack", "info", "memory_usage", "duplicated", "equals"),
        *("fetchone", "fetchall", "fetchmany", "cursor", "read", "readline", "readlines", "read_text", "read_bytes"),
        *("exists", "is_file", "is_dir", "iterdir", "glob", "rglob", "stat", "listdir", "getcwd", "walk", "getenv"),
        *("group", "groups", "groupdict", "match", "search", "findall", "finditer", "sub", "most_common", "elements"),
        *("isoformat", "strftime", "timestamp", "date", "weekday", "total_seconds", "isocalendar", "item", "flatten"),
        *("predict", "score", "transform", "subs", "diff", "integrate", "expand", "factor", "simplify", "evalf"),
        *("index", "count", "json", "drop_duplicates", "add_suffix", "add_prefix", "getsize", "basename", "dirname"),
        *("subplots", "figure", "connect"),
    }
)
"""Methods that give something back and change nothing. (A connection that is opened twice is none the worse.)"""
FETCHES = frozenset({("requests", "get"), ("requests", "head"), ("httpx", "get"), ("urllib", "urlopen")})
_READS_SQL = re.compile(r"\s*(?:select|with|pragma\s+table_info|explain|show|describe)\b", re.IGNORECASE)
_UNDEFINED = re.compile(r"name '(\w+)' is not defined|has no attribute '(\w+)'|cannot import name '(\w+)'")
_PURE_BUILTINS = frozenset(dir(builtins)) - OUTWARD - {"open"}
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_CHANGING = (
    *(ast.Call, ast.keyword, ast.Attribute, ast.Subscript, ast.AugAssign),
    *(ast.Delete, ast.Global, ast.Await, ast.Yield),
)
"""Nodes without one of which a statement changes nothing but the names that it binds."""


@kept
def effects(tree: ast.Module) -> set[str]:
    """Return the names of the calls in a program that may change something outside of it."""
    found: set[str] = set()
    functions = [call.func for call in nodes_of(tree, ast.Call)]
    if all(isinstance(each, ast.Name) and each.id in _PURE_BUILTINS for each in functions):
        return found
    known = _Known(frozenset())
    for statement in tree.body:
        calls = list(known.changing_calls(statement))
        found.update(_name(call) for call in calls if _name(call) not in MUTATORS)
        known.learn(statement, bool(calls) or known.changes(statement))
    return found


def lost_state(
    before: ast.Module, after: ast.Module, missing: Collection[str], line: int | None, reads_later: ReadsLater
) -> bool:
    """Return whether a program may have left something behind that its correction doesn't leave again.

    Args:
        before: The program that failed.
        after: Its correction.
        missing: Names that turned out not to be there.
        line: The line that failed; None if nobody knows, which may be any.
        reads_later: Says whether a program after the correction may read one of some names.
    """
    known = _Known(frozenset(missing))
    bound: set[str] = set()
    failing = _failing(before, missing)
    for statement in before.body:
        if line is not None and statement.lineno > line:
            break
        if failing is not None and statement is failing:
            # Of the statement that failed, only the calls before the missing name were made.
            if any(not known.is_pure(call) for call in _made_before(failing, missing)):
                return True
            break
        changed = known.changes(statement)
        if changed and not _comes_again(statement, after, known):
            return True
        known.learn(statement, changed)
        bound |= set(bound_names(statement))
    lost = bound - all_bound_names(after)
    return bool(lost & unbound_reads(after)) or reads_later(lost)


def _failing(program: ast.Module, missing: Collection[str]) -> ast.Expr | ast.Assign | None:
    """Return the statement that a missing name ended, if the program has it once, where it is evaluated once."""
    named = [
        *((each, node.ctx) for each in program.body for node in nodes_of(each, ast.Name) if node.id in missing),
        *((each, node.ctx) for each in program.body for node in nodes_of(each, ast.Attribute) if node.attr in missing),
    ]
    read = [statement for statement, context in named if isinstance(context, ast.Load)]
    if len(read) != 1:
        return None
    statement = read[0]
    deferred = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.IfExp, ast.BoolOp)
    if not isinstance(statement, ast.Expr | ast.Assign) or has(statement, *deferred):
        return None
    return statement


def called(node: ast.AST) -> str:
    """Return the name of a variable or an attribute; empty of anything else."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _made_before(statement: ast.Expr | ast.Assign, missing: Collection[str]) -> list[ast.Call]:
    """Return the calls of a statement that were made before a missing name was looked up."""
    made: list[ast.Call] = []

    def evaluated(node: ast.AST) -> bool:
        """Note the calls of an expression in their order; return whether all of it was evaluated."""
        if not all(evaluated(child) for child in ast.iter_child_nodes(node)) or called(node) in missing:
            return False
        if isinstance(node, ast.Call):
            made.append(node)
        return True

    evaluated(statement.value)
    return made


def missing_names(told: str) -> Iterator[str]:
    """Yield the names that an exception says are not there: nothing of that name was called."""
    for groups in _UNDEFINED.findall(told):
        yield from filter(None, groups)


class _Known:
    """What is known of the names of a program, as far as it has run."""

    def __init__(self, missing: frozenset[str]) -> None:
        self.missing = missing
        """Names that turned out not to exist: nothing of that name was called."""
        self.modules: dict[str, str] = {}
        self.own: set[str] = set()
        """Names of objects that the program has made itself, of things that only compute."""

    def learn(self, statement: ast.stmt, changes: bool) -> None:
        """Take note of what a statement binds; `changes` is what `changes` says of it."""
        for node in nodes_of(statement, ast.Import):
            self.modules |= {alias.asname or alias.name.partition(".")[0]: alias.name for alias in node.names}
        for source in nodes_of(statement, ast.ImportFrom):
            if (source.module or "").partition(".")[0] in PURE_MODULES:
                self.own |= {alias.asname or alias.name for alias in source.names if alias.name not in OUTWARD}
        if isinstance(statement, _DEFINITIONS):
            inside = {statement.name, *_arguments(statement)}
            if all(self._is_pure(each, inside) for each in nodes_of(statement, ast.Call)):
                self.own.add(statement.name)
        elif not changes and not self._is_alias(statement):
            self.own |= set(bound_names(statement)) - self.modules.keys()
        else:
            self.own -= set(bound_names(statement))

    def changes(self, statement: ast.stmt) -> bool:
        """Return whether a statement may change more than the names that it binds."""
        if isinstance(statement, (*_DEFINITIONS, ast.Import, ast.ImportFrom)) or not has(statement, *_CHANGING):
            return False
        if has(statement, ast.Delete, ast.Global, ast.Await, ast.Yield) or _is_in_place(statement):
            return True
        fresh = self._fresh(statement)
        if any(_root(node.target) not in fresh for node in nodes_of(statement, ast.AugAssign)):
            return True
        if any(_root(node) not in fresh for node in _places(statement, ast.Store)):
            return True
        return any(not self._is_pure(call, fresh) for call in nodes_of(statement, ast.Call))

    def changing_calls(self, statement: ast.stmt) -> Iterator[ast.Call]:
        """Yield the calls in a statement that may change something."""
        if isinstance(statement, _DEFINITIONS):
            return
        fresh = self._fresh(statement)
        for node in nodes_of(statement, ast.Call):
            if not self._is_pure(node, fresh):
                yield node

    def is_pure(self, call: ast.Call) -> bool:
        """Return whether a call changes nothing but the program's own objects."""
        return self._is_pure(call, self.own)

    def _fresh(self, statement: ast.stmt) -> set[str]:
        """Return the names of the program's own objects, with those of a loop's or a comprehension's."""
        targets = [loop.target for loop in nodes_of(statement, ast.comprehension)]
        targets += [loop.target for loop in nodes_of(statement, ast.For)]
        targets += [loop.target for loop in nodes_of(statement, ast.AsyncFor)]
        return self.own.union(*([node.id for node in nodes_of(target, ast.Name)] for target in targets))

    def _is_alias(self, statement: ast.stmt) -> bool:
        """Return whether a statement gives another name to an object that is not the program's own, or opens a file."""
        value = getattr(statement, "value", None)
        if isinstance(value, ast.Name | ast.Attribute | ast.Subscript):
            return _root(value) not in self.own
        called = {_name(node) for node in nodes_of(statement, ast.Call)}
        return bool(called & {"open", "connect", "cursor", "get", "figure"}) and not isinstance(statement, ast.For)

    def _is_pure(self, call: ast.Call, fresh: set[str]) -> bool:
        function = call.func
        if isinstance(function, ast.Name):
            name = function.id
            if name == "open":
                return _is_reading(call)
            return name in self.missing or name in _PURE_BUILTINS or (name in fresh and name not in OUTWARD)
        if not isinstance(function, ast.Attribute):
            return False
        name, root = function.attr, _root(function)
        if name in self.missing or root in self.missing:
            return True
        if name in ("execute", "sql"):
            return bool(call.args) and _READS_SQL.match(_constant(call.args[0])) is not None
        if name in OUTWARD:
            return False
        if name in MUTATORS:
            return (root in fresh and root not in self.modules) or _is_made_here(function.value)
        module = self.modules.get(root, "")
        if (module, name) in FETCHES or module.partition(".")[0] in PURE_MODULES or module in PURE_MODULES:
            return True
        return root in fresh or name in LOOKING or isinstance(function.value, ast.Constant | ast.JoinedStr)


def _comes_again(statement: ast.stmt, after: ast.Module, known: _Known) -> bool:
    """Return whether the correction does again what a statement changes, and leaves the same."""
    if has(statement, ast.Delete, ast.Global, ast.AugAssign, ast.Await) or _is_in_place(statement):
        return False
    calls = list(known.changing_calls(statement))
    if any(_name(call) not in OVERWRITES or _appends(call) for call in calls):
        return False
    if any(ast.dump(statement) == ast.dump(each) for each in after.body):
        return not _reads_what_it_sets(statement)
    targets = _targets(statement)
    return bool(calls) and bool(targets) and targets <= _targets(after)


def _reads_what_it_sets(statement: ast.stmt) -> bool:
    """Return whether a statement changes a thing by what it was before: done twice, it gives something else."""
    stored = {ast.unparse(node) for node in _places(statement, ast.Store)}
    return any(ast.unparse(node) in stored for node in _places(statement, ast.Load))


def _places(statement: ast.stmt, context: type[ast.expr_context]) -> list[ast.Attribute | ast.Subscript]:
    """Return the attributes and items that a statement sets or reads."""
    every: list[ast.Attribute | ast.Subscript] = [*nodes_of(statement, ast.Attribute)]
    every += nodes_of(statement, ast.Subscript)
    return [node for node in every if isinstance(node.ctx, context)]


def _is_in_place(statement: ast.stmt) -> bool:
    return any(node.arg == "inplace" for node in nodes_of(statement, ast.keyword))


def _targets(tree: ast.AST) -> set[str]:
    """Return the files that a program writes from their beginning."""
    return {
        _constant(call.args[0])
        for call in nodes_of(tree, ast.Call)
        if call.args and _name(call) in OVERWRITES and not _appends(call)
        if _constant(call.args[0]) and not (_name(call) == "open" and _is_reading(call)) and _name(call) != "write"
    }


def _is_made_here(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id[:1].isupper()


def _is_reading(call: ast.Call) -> bool:
    return not set(_mode(call)) & set("wax+")


def _appends(call: ast.Call) -> bool:
    return bool(set(_mode(call)) & set("a+x")) if _name(call) in ("open", "to_csv") else False


def _mode(call: ast.Call) -> str:
    given = next((keyword.value for keyword in call.keywords if keyword.arg == "mode"), None)
    if given is None and _name(call) == "open" and len(call.args) > 1:
        given = call.args[1]
    if given is None:
        return "" if _name(call) == "open" else "w"
    return _constant(given) or "a"  # a mode that nobody knows may be any


def _constant(node: ast.AST) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _name(call: ast.Call) -> str:
    function = call.func
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else "?"
    )


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _arguments(statement: ast.stmt) -> Iterator[str]:
    yield from (node.arg for node in nodes_of(statement, ast.arg))
    yield from (node.id for node in nodes_of(statement, ast.Name) if isinstance(node.ctx, ast.Store))


@kept
def bound_names(statement: ast.AST) -> list[str]:
    """Return the names that a statement binds. They are kept with it."""
    if isinstance(statement, _DEFINITIONS):
        return [statement.name]
    found = [node.id for node in nodes_of(statement, ast.Name) if isinstance(node.ctx, ast.Store)]
    found += [(node.asname or node.name).partition(".")[0] for node in nodes_of(statement, ast.alias)]
    if has(statement, *_DEFINITIONS):
        found += [node.name for node in nodes(statement) if isinstance(node, _DEFINITIONS)]
    return found


@kept
def all_bound_names(program: ast.Module) -> set[str]:
    """Return the names that a program binds. They are kept with it."""
    return {name for statement in program.body for name in bound_names(statement)}


@kept
def unbound_reads(program: ast.Module) -> set[str]:
    """Return the names that are read before the program itself has bound them. They are kept with it."""
    bound: set[str] = set()
    read: set[str] = set()
    for statement in program.body:
        used = {node.id for node in nodes_of(statement, ast.Name) if not isinstance(node.ctx, ast.Store)}
        own = set(bound_names(statement))
        read |= used - bound - (own if isinstance(statement, ast.FunctionDef | ast.For | ast.With) else set())
        bound |= own
    return read

"""What a call does: it runs Python, a shell command or a query, edits a file, or does something else.

A tool that is ours says so itself (`ToolSpec.kind`). Of any other tool, as logs name them, `call_kind` knows it by the
name and the arguments, and `call_code` finds the program, command or query among the arguments.

Limits: the names are those of agents and servers that people use in 2026. A tool that no table knows is `OTHER`.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import lru_cache


class CallKind(StrEnum):
    """What a call does."""

    PYTHON = "python"
    """Runs a Python program."""
    SHELL = "shell"
    """Runs a command of a shell."""
    EDIT = "edit"
    """Changes a file, or shows it with the tool that changes files."""
    SQL = "sql"
    """Runs a query, or any other statement of SQL."""
    OTHER = "other"
    """Does something else, or is a call that can't be read."""


NAMES: Mapping[CallKind, Iterable[str]] = {
    CallKind.PYTHON: (
        *("python", "python3", "ipython", "jupyter", "notebook", "code_interpreter", "code_execution"),
        *("execute_ipython_cell", "execute_python", "execute_python_code", "python_code_interpreter"),
        *("python_exec", "python_execute", "python_executor", "python_interpreter", "python_repl", "python_tool"),
        *("run_ipython", "run_python", "run_python_code", "stateful_python_code_exec"),
        *("run_cell", "exec_cell", "execute_cell", "jupyter_cell", "notebook_cell", "run_notebook_cell"),
    ),
    CallKind.SHELL: (
        *("bash", "sh", "zsh", "shell", "powershell", "terminal", "exec", "cmd"),
        *("bash_session", "bash_tool", "bash_command", "bash_code_execution", "run_bash", "execute_bash"),
        *("local_shell", "run_shell", "shell_command", "shell_exec", "shell_tool", "execute_shell"),
        *("run_shell_command", "execute_shell_command", "run_command", "execute_command", "exec_command"),
        *("command_execution", "run_in_terminal", "run_terminal_cmd", "run_terminal_command", "launch_process"),
    ),
    CallKind.EDIT: (
        *("str_replace_editor", "str_replace_based_edit_tool", "text_editor", "file_editor", "edit_tool"),
        *("text_editor_code_execution", "str_replace", "search_replace", "replace_in_file", "replace_string_in_file"),
        *("edit", "multi_edit", "edit_file", "edit_existing_file", "insert_edit_into_file", "notebook_edit"),
        *("write", "write_file", "write_to_file", "create", "create_file", "create_new_file", "append_to_file"),
        *("insert", "insert_content", "replace", "undo_edit", "delete_file", "apply_diff", "apply_patch"),
    ),
    CallKind.SQL: (
        *("sql", "sql_query", "run_sql", "execute_sql", "query_sql", "run_sql_query", "execute_sql_query"),
        *("sql_db_query", "db_query", "query_database", "query_db", "database_query", "read_query", "write_query"),
        *("sqlite", "sqlite_query", "postgres_query", "pg_query", "mysql_query", "duckdb", "duckdb_query"),
        *("bigquery", "bq_query", "snowflake_query", "run_select_query"),
    ),
}
"""Names of tools, by what their calls do. Case, `-` and `_` don't matter, nor what a server's name puts before them."""

CODE_ARGUMENTS: Mapping[CallKind, tuple[str, ...]] = {
    CallKind.PYTHON: ("code", "source", "script", "program", "cell", "python_code", "input", "query"),
    CallKind.SHELL: ("command", "cmd", "commands", "script", "code", "input", "keystrokes"),
    CallKind.SQL: ("query", "sql", "statement", "sql_query", "statements", "input"),
}
"""Arguments with the program, command or query, the most usual first."""
PATH_ARGUMENTS = ("path", "file_path", "filepath", "filePath", "target_file", "filename", "file_name", "file", "uri")
PATCH_ARGUMENTS = ("patch", "diff", "input")
OLD_ARGUMENTS = ("old_str", "old_string", "oldString", "old_text", "search", "old")
NEW_ARGUMENTS = ("new_str", "new_string", "newString", "new_text", "replacement", "new")
COMMAND_ARGUMENTS = frozenset(
    {
        *("command", "cmd", "cwd", "workdir", "working_directory", "dir_path", "directory", "timeout", "timeout_ms"),
        *("description", "explanation", "is_input", "is_background", "isBackground", "run_in_background", "blocking"),
        *("restart", "security_risk", "requires_approval", "login", "with_escalated_permissions", "justification"),
    }
)
"""Arguments of tools that run a command, and of no others: a call with these alone is a shell's."""
SHELLS = frozenset({"bash", "sh", "zsh", "dash", "/bin/bash", "/bin/sh", "/usr/bin/bash", "/usr/bin/zsh", "/bin/zsh"})
STATEMENT = re.compile(
    r"""\s*(?:--[^\n]*\n\s*)*(?:
        SELECT\b.*\bFROM\b | SELECT\s+[\d'(*] | WITH\s+\w+\s+AS\s*\( | INSERT\s+(?:OR\s+\w+\s+)?INTO\b
      | UPDATE\s+\S+\s+SET\b | DELETE\s+FROM\b
      | (?:CREATE|ALTER|DROP)\s+(?:OR\s+REPLACE\s+)?(?:TEMP\w*\s+)?(?:TABLE|VIEW|INDEX)\b
      | PRAGMA\s+\w+ | EXPLAIN\s+(?:QUERY|ANALYZE|SELECT)\b | SHOW\s+(?:TABLES|COLUMNS|DATABASES)\b
    )""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
PYTHON_NAME = re.compile(r"python|jupyter", re.IGNORECASE)
NAMESPACE = re.compile(r".*(?:__|[./:])", re.DOTALL)


def _plain(name: str) -> str:
    return NAMESPACE.sub("", name).lower().replace("_", "").replace("-", "")


_KINDS = {_plain(name): kind for kind, names in NAMES.items() for name in names}


def call_kind(name: str, arguments: Mapping[str, object]) -> CallKind:
    """Return what a call of a tool that nobody described does, by the tool's name and the call's arguments.

    Examples:
        >>> from cleaner_rl.tools import call_kind
        >>> call_kind("Bash", {"command": "ls"}).value, call_kind("shell", {"command": ["bash", "-lc", "ls"]}).value
        ('shell', 'shell')
        >>> call_kind("mcp__postgres__query", {"sql": "SELECT 1"}).value
        'sql'
        >>> call_kind("mcp__github__get_issue", {"number": 3}).value
        'other'
    """
    known = _named(name)
    if known is CallKind.EDIT and arguments and not _first(arguments, (*PATH_ARGUMENTS, *PATCH_ARGUMENTS)):
        known = None  # "create" and "write" are names of many a tool that knows no files
    return known or _kind_of_arguments(name, arguments)


def call_code(kind: CallKind, arguments: Mapping[str, object]) -> str:
    """Return what a call runs, as a person would write it: the program, command or query, never the JSON around it.

    Of a file edit it is the operation and the path, then the lines that go (`-`) and those that come (`+`). A call
    of another kind has nothing but its arguments, which are written as canonical JSON.

    Examples:
        >>> from cleaner_rl.tools import CallKind, call_code
        >>> call_code(CallKind.SHELL, {"command": ["bash", "-lc", "ls -l"], "workdir": "/tmp"})
        'ls -l'
        >>> edit = {"command": "str_replace", "path": "a.py", "old_str": "n-1", "new_str": "n - 1"}
        >>> print(call_code(CallKind.EDIT, edit))
        str_replace a.py
        -n-1
        +n - 1
    """
    if kind is CallKind.EDIT:
        return _edit(arguments)
    found = _first(arguments, CODE_ARGUMENTS.get(kind, ()))
    if found:
        value = arguments[found]
        return value if isinstance(value, str) else _command(value)
    texts = [value for value in arguments.values() if isinstance(value, str)]
    if kind is not CallKind.OTHER and len(texts) == 1:
        return texts[0]
    return canonical(arguments)


def canonical(arguments: Mapping[str, object]) -> str:
    """Return arguments as JSON that is the same however they were ordered."""
    return json.dumps(dict(arguments), sort_keys=True, ensure_ascii=False)


@lru_cache(1024)
def _named(name: str) -> CallKind | None:
    return _KINDS.get(_plain(name))


def _kind_of_arguments(name: str, arguments: Mapping[str, object]) -> CallKind:
    query = arguments.get("query")
    if _first(arguments, ("sql",)) or (isinstance(query, str) and STATEMENT.match(query)):
        return CallKind.SQL
    if _first(arguments, PATH_ARGUMENTS) and _first(arguments, OLD_ARGUMENTS) and _first(arguments, NEW_ARGUMENTS):
        return CallKind.EDIT
    if _first(arguments, CODE_ARGUMENTS[CallKind.PYTHON]) and (
        PYTHON_NAME.search(name) or str(arguments.get("language")).lower() in ("python", "python3", "py")
    ):
        return CallKind.PYTHON
    command = arguments.get("command")
    if isinstance(command, list) and command and _is_text(command) and command[0] in SHELLS:
        return CallKind.SHELL
    if isinstance(command, str) and not name.startswith("mcp__") and arguments.keys() <= COMMAND_ARGUMENTS:
        return CallKind.SHELL
    return CallKind.OTHER


def _first(arguments: Mapping[str, object], names: Iterable[str]) -> str | None:
    """Return the first of these arguments that is a text, or a list of texts."""
    return next((name for name in names if name in arguments and _is_text(arguments[name])), None)


def _is_text(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(each, str) for each in value))


def _command(words: object) -> str:
    """Return a command in words as a line: what a shell is given by `-c`, or else the words quoted."""
    listed = [str(word) for word in words] if isinstance(words, list) else []
    if len(listed) == 3 and listed[0] in SHELLS and re.fullmatch(r"-\w*c", listed[1]):
        return listed[2]
    return shlex.join(listed)


def _edit(arguments: Mapping[str, object]) -> str:
    rest = dict(arguments)
    patch = _first(rest, PATCH_ARGUMENTS)
    path = _first(rest, PATH_ARGUMENTS)
    if path is None and patch is not None:
        return str(rest[patch])
    head = [str(rest.pop(each)) for each in ("command", path) if each is not None and isinstance(rest.get(each), str)]
    old = _lines("-", rest, OLD_ARGUMENTS)
    new = _lines("+", rest, (*NEW_ARGUMENTS, "file_text", "content", "contents", "insert_text", "code_edit"))
    others = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in sorted(rest.items())]
    return "\n".join([" ".join(head), *others, *old, *new])


def _lines(sign: str, rest: dict[str, object], names: Iterable[str]) -> list[str]:
    """Take the first of these arguments out, and return its lines with a sign before each."""
    found = next((name for name in names if isinstance(rest.get(name), str)), None)
    return [] if found is None else [f"{sign}{line}" for line in str(rest.pop(found)).split("\n")]

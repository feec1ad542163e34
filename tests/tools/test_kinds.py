"""What calls of tools that nobody described do, and what they run."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cleaner_rl.tools import CallKind, ToolSet, ToolSpec, call_code, call_kind, python_tool

EDIT = {"command": "str_replace", "path": "/w/a.py", "old_str": "x-1", "new_str": "x - 1"}
PATCH = "*** Begin Patch\n*** Update File: a.py\n-x\n+y\n*** End Patch"


@pytest.mark.parametrize(
    ("name", "arguments", "kind", "code"),
    [
        ("python", {"code": "print(1)"}, CallKind.PYTHON, "print(1)"),
        ("execute_ipython_cell", {"cell": "1"}, CallKind.PYTHON, "1"),
        ("python_interpreter", {"anything": "2"}, CallKind.PYTHON, "2"),
        ("run", {"language": "Python", "code": "3"}, CallKind.PYTHON, "3"),
        ("run", {"language": "javascript", "code": "3"}, CallKind.OTHER, '{"code": "3", "language": "javascript"}'),
        ("mcp__sandbox__run_python_script", {"script": "4"}, CallKind.PYTHON, "4"),
        ("Bash", {"command": "ls -l", "description": "List"}, CallKind.SHELL, "ls -l"),
        ("functions.shell", {"command": ["bash", "-lc", "ls | wc"], "workdir": "/w"}, CallKind.SHELL, "ls | wc"),
        ("shell", {"command": ["git", "commit", "-m", "a b"]}, CallKind.SHELL, "git commit -m 'a b'"),
        ("exec_command", {"cmd": "make"}, CallKind.SHELL, "make"),
        ("run_in_terminal", {"command": "make", "isBackground": False}, CallKind.SHELL, "make"),
        ("do", {"command": "make", "timeout": 3}, CallKind.SHELL, "make"),
        ("mcp__browser__act", {"command": "click"}, CallKind.OTHER, '{"command": "click"}'),
        ("str_replace_editor", EDIT, CallKind.EDIT, "str_replace /w/a.py\n-x-1\n+x - 1"),
        ("str_replace_editor", {"command": "view", "path": "/w"}, CallKind.EDIT, "view /w"),
        ("Write", {"file_path": "a", "content": "1\n2"}, CallKind.EDIT, "a\n+1\n+2"),
        ("MultiEdit", {"file_path": "a", "edits": [1]}, CallKind.EDIT, "a\nedits: [1]"),
        ("mcp__fs__change", {"path": "a", "old_text": "1", "new_text": "2"}, CallKind.EDIT, "a\n-1\n+2"),
        ("mcp__notion__create", {"title": "a"}, CallKind.OTHER, '{"title": "a"}'),
        ("apply_patch", {"input": PATCH}, CallKind.EDIT, PATCH),
        ("execute_sql", {"query": "SELECT 1", "db": "x"}, CallKind.SQL, "SELECT 1"),
        ("mcp__postgres__query", {"sql": "DROP TABLE a"}, CallKind.SQL, "DROP TABLE a"),
        ("ask", {"query": "-- all\nselect a\nfrom b"}, CallKind.SQL, "-- all\nselect a\nfrom b"),
        ("web_search", {"query": "select a laptop"}, CallKind.OTHER, '{"query": "select a laptop"}'),
        ("Read", {"file_path": "a"}, CallKind.OTHER, '{"file_path": "a"}'),
        ("", {}, CallKind.OTHER, "{}"),
    ],
)
def test_name_and_arguments_say_what_a_call_does(
    name: str, arguments: dict[str, Any], kind: CallKind, code: str
) -> None:
    assert call_kind(name, arguments) is kind
    assert call_code(kind, arguments) == code


def test_a_tool_says_itself_what_its_calls_do() -> None:
    own = ToolSpec("ask", code_argument="query", kind=CallKind.SQL)
    tools = ToolSet(python_tool("solve", "text"), own, ToolSpec("bash"))
    asked = tools.read("ask", {"query": "who?"}, 0, 0)
    assert (asked.kind, asked.code) == (CallKind.SQL, "who?")
    assert tools.read("solve", {"text": "1"}, 0, 0).kind is CallKind.PYTHON
    assert tools.read("bash", {"command": "ls"}, 0, 0).kind is CallKind.SHELL


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(
    st.sampled_from(["command", "cmd", "code", "query", "sql", "path", "old_str", "new_str", "patch", "language", "x"]),
    JSON,
)


@example("edit", {"command": [[]]})
@given(st.sampled_from(["bash", "edit", "apply_patch", "sql", "python", "mcp__a__b"]), ARGUMENTS)
def test_whatever_the_arguments_are_they_are_read(name: str, arguments: dict[str, Any]) -> None:
    kind = call_kind(name, arguments)
    assert isinstance(call_code(kind, arguments), str)


@given(ARGUMENTS, ARGUMENTS)
def test_different_edits_have_different_codes(one: dict[str, Any], other: dict[str, Any]) -> None:
    one, other = one | {"path": "a"}, other | {"path": "a"}
    if one != other and not {"patch", "input"} & (one.keys() | other.keys()):
        assert call_code(CallKind.EDIT, one) != call_code(CallKind.EDIT, other)

"""A repair is made where the failed call had no effect and the later one has its target, or where it is proven."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cleaner_rl.logs import Reading, purify_log, read_record
from cleaner_rl.logs.judging import judge_call
from cleaner_rl.logs.targets import misspelt, same_program, same_target
from cleaner_rl.logs.warrant import LONGEST, NOTHING_HAPPENED, REPLAY, Unwarranted, Warrant, unwarranted
from cleaner_rl.purify import RepairConfig
from cleaner_rl.tools import Status, ToolCall, ToolResult
from cleaner_rl.trajectory import TextSpan, Trajectory, Turn, undo
from tests.logs.cases import FIX, NAME, SLIP, Case, Step, py
from tests.logs.rendering import openai

HAPPENED, OTHER = Unwarranted.HAPPENED, Unwarranted.OTHER_TARGET
Arguments = dict[str, Any]


def call(tool: str, arguments: Arguments) -> ToolCall:
    return Reading().tools.call(tool, arguments, 0, 0)


def turn(tool: str, arguments: Arguments, told: str, **fields: Any) -> Turn[TextSpan]:
    made = call(tool, arguments)
    result = judge_call(made, told, fields).result
    assert result is not None, f"{told!r} is judged as unsure"
    return Turn(TextSpan(""), TextSpan(""), TextSpan(told), (made,), (result,))


def reason(tool: str, failed: Arguments, told: str, correction: Arguments, *, replayed: bool = False) -> str | None:
    """Return why a correction is refused; None if it is taken."""
    first = turn(tool, failed, told, is_error=True)
    worked = Turn(TextSpan(""), TextSpan(""), TextSpan("ok"), (call(tool, correction),), (ToolResult(Status.OK, "ok"),))
    return unwarranted(first, worked, replayed=replayed)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("pyhton", "python", True),
        ("user", "users", True),
        ("celcius", "celsius", True),
        ("part1", "part2", False),
        ("import", "export", False),
        ("cat", "car", False),
        ("a", "b", False),
    ],
)
def test_a_slip_keeps_the_first_letter_and_the_digits(first: str, second: str, same: bool) -> None:
    assert misspelt(first, second) is same
    assert misspelt(second, first) is same


ABSENT = "No replacement was performed, old_str `x` did not appear verbatim in /a.py."
SYNTAX = "Your proposed edit has introduced new syntax error(s).\n\nERRORS:\n- E999 IndentationError"


@pytest.mark.parametrize(
    ("old", "new", "other_old", "other_new", "told", "expected"),
    [
        ("x=1", "x=2", "x = 1", "x = 2", ABSENT, None),
        ("x = 1", "x = 2", "def f():\n    x = 1", "def f():\n    x = 2", ABSENT, None),
        ("x = 1", "x = 2", "x = 1", "x = 3", ABSENT, OTHER),
        ("while i<n:", "while i<=n:", "while i < n:", "while i > n:", ABSENT, OTHER),
        ("retries:3", "retries: 5", "workers: 3", "workers: 5", ABSENT, OTHER),
        ("log(x)\n", "", "log(x, y)\n", "", ABSENT, OTHER),
        ("log(x)\n", "", "    log(x)\n", "", ABSENT, None),
        ("x = 1", "x = 2", "y\nx = 1", "y\nx = 2", "Multiple occurrences of old_str `x` in lines [1, 9].", HAPPENED),
        ("x = 1", "x = 2", "x=1", "x=2", "File has been modified since read.", HAPPENED),
        ("f(n", "f(n=0", "f(n=0", "f(n=0)", "The file /a.py has been edited.\nERROR: it no longer parses", HAPPENED),
    ],
)
def test_edits_put_the_same_words_into_the_file(
    old: str, new: str, other_old: str, other_new: str, told: str, expected: Unwarranted | None
) -> None:
    failed = {"command": "str_replace", "path": "/a.py", "old_str": old, "new_str": new}
    correction = {**failed, "old_str": other_old, "new_str": other_new}
    assert reason("str_replace_editor", failed, told, correction) == expected
    elsewhere = {**correction, "path": "/b.py"}
    assert reason("str_replace_editor", failed, told, elsewhere) == (expected or OTHER)
    with_force = {**correction, "replace_all": True}
    assert reason("str_replace_editor", failed, told, with_force) == (expected or OTHER)


@pytest.mark.parametrize(
    ("failed", "correction", "expected"),
    [
        ("edit 3:3\nreturn f(x)\nend_of_edit", "edit 3:4\n    return f(x)\nend_of_edit", None),
        ("edit 3:3\nreturn f(x)\nend_of_edit", "edit 1:3\ndef g(x):\n    return f(x)\nend_of_edit", None),
        ("edit 3:3\nreturn f(x)\nend_of_edit", "edit 9:9\nclass Queue:\n    size: int\nend_of_edit", OTHER),
        ("create a.py", "create b.py", OTHER),
    ],
)
def test_a_text_that_its_editor_found_wrong_may_differ(
    failed: str, correction: str, expected: Unwarranted | None
) -> None:
    assert reason("edit", {"input": failed}, SYNTAX, {"input": correction}) == expected


def test_a_multi_edit_has_as_many_parts() -> None:
    edits = [{"old_string": each, "new_string": each * 2} for each in ("alpha", "beta")]
    told = "edit 2: string not found. None of the edits were applied."
    failed = {"file_path": "/a.py", "edits": [edits[0], {"old_string": " beta", "new_string": "betabeta"}]}
    assert reason("MultiEdit", failed, f"Failed to edit: {told}", {"file_path": "/a.py", "edits": edits}) is None
    assert reason("MultiEdit", failed, f"Failed to edit: {told}", {"file_path": "/a.py", "edits": edits[:1]}) == OTHER
    applied = f"Edit 1 of 2 applied.\nFailed to edit: {told}"
    assert reason("MultiEdit", failed, applied, {"file_path": "/a.py", "edits": edits}) == HAPPENED


REQUIRED = "MCP error -32602: Invalid arguments for tool update: issue_number is required"


@pytest.mark.parametrize(
    ("failed", "told", "correction", "expected"),
    [
        ({"number": 4}, REQUIRED, {"issue_number": 4}, None),
        ({"number": 4}, REQUIRED, {"issue_number": 5}, OTHER),
        ({"n": "4"}, "Validation error: n must be a number", {"n": 4}, None),
        ({"to": "ann; bo"}, "Validation error: to must be a list", {"to": ["ann", "bo"]}, None),
        ({"to": "ann; bo"}, "Validation error: to must be a list", {"to": ["ann"]}, OTHER),
        ({"a": 1}, "Missing required field: level", {"a": 1, "level": "P1"}, OTHER),
        ({"n": 430}, "Invalid arguments: n must be at most 100", {"n": 100}, OTHER),
        ({"n": 4}, "Error: not enough seats", {"n": "4"}, HAPPENED),
        ({"n": 4}, "Invalid arguments: confirm", {"n": 4, "confirm": True}, OTHER),
    ],
)
def test_calls_that_a_tool_did_not_take_have_the_same_values(
    failed: Arguments, told: str, correction: Arguments, expected: Unwarranted | None
) -> None:
    assert reason("mcp__tracker__update", failed, told, correction) == expected


@pytest.mark.parametrize(
    ("failed", "told", "correction", "expected"),
    [
        ("print(sum([3, 4])", "SyntaxError: '(' was never closed", "print(sum([3, 4]))", None),
        ("x = 5/($5+k)", "SyntaxError: invalid syntax", "x = 5/(5+k)", None),
        ("print(sum([3, 4])", "SyntaxError: '(' was never closed", "print(sum([3, 5]))", OTHER),
        ("for i in a print(i, b)", "SyntaxError: invalid syntax", "for i in a: print(i)", OTHER),
        ("if a < b print(a)", "SyntaxError: invalid syntax", "if a > b: print(a)", OTHER),
        ("print(1 + y)", "NameError: name 'y' is not defined", "print(1 + 1)", HAPPENED),
        ("exec('a b')", "SyntaxError: invalid syntax", "exec('a; b')", HAPPENED),
        ("!ls a.csv\nprint(1", "SyntaxError: '(' was never closed", "!ls a.csv\nprint(1)", HAPPENED),
    ],
)
def test_programs_that_python_could_not_read(
    failed: str, told: str, correction: str, expected: Unwarranted | None
) -> None:
    assert reason("python", {"code": failed}, told, {"code": correction}) == expected


@pytest.mark.parametrize(
    ("failed", "told", "correction", "expected"),
    [
        ("python a.py", "bash: python: command not found", "python3 a.py", None),
        ("pyhton a.py", "bash: line 1: pyhton: command not found", "python a.py", None),
        ("pip install x", "bash: pip: command not found", "pipx install x", OTHER),
        ("python a.py", "bash: python: command not found", "python3 b.py", OTHER),
        ("make; python a.py", "bash: python: command not found", "make; python3 a.py", HAPPENED),
        ("cd x && python a.py", "bash: python: command not found", "cd x && python3 a.py", HAPPENED),
        ("echo $(date", "bash: -c: line 1: unexpected EOF while looking for matching `)'", "echo $(date)", None),
        ("mkdir a\necho $(date", "bash: -c: line 2: unexpected EOF while looking", "mkdir a\necho $(date)", HAPPENED),
        ("ls a.csv", "ls: cannot access 'a.csv': No such file or directory", "ls b.csv", HAPPENED),
        ("pytest -q", "1 failed, 3 passed", "pytest -q tests/b.py", HAPPENED),
    ],
)
def test_commands_of_which_nothing_ran(failed: str, told: str, correction: str, expected: Unwarranted | None) -> None:
    first = turn("bash", {"command": failed}, told, exit_code=1)
    worked = replace(first, calls=(call("bash", {"command": correction}),), results=(ToolResult(Status.OK, "ok"),))
    assert unwarranted(first, worked) == expected


@pytest.mark.parametrize(
    ("failed", "told", "correction", "expected"),
    [
        ("SELECT avg(aeg) FROM c", "no such column: aeg", "SELECT avg(age) FROM c", None),
        ("SELECT name FROM s WHERE id = 3", "Unknown column 'id'", "SELECT name FROM s WHERE s_id = 3", None),
        (
            "SELECT id, n FROM a JOIN b ON a.x = b.x",
            "ambiguous column",
            "SELECT a.id, n FROM a JOIN b ON a.x = b.x",
            None,
        ),
        ("SELECT a FROM cities", "no such table: cities", "SELECT a FROM city", OTHER),
        ("SELECT a FROM singers", "no such table: singers", "SELECT a FROM singer", None),
        ("SELECT a FROM show", "You have an error in your SQL syntax", "SELECT a FROM `show`", None),
        ("SELECT a FROM t WHERE x = 'FR'", "no such column: x", "SELECT a FROM t WHERE y_x = 'DE'", OTHER),
        ("SELECT a FROM t WHERE n < 3", "syntax error", "SELECT a FROM t WHERE n > 3", OTHER),
        ("SELECT a FROM t ORDER BY prise DESC", "no such column: prise", "SELECT a FROM t ORDER BY price ASC", OTHER),
        ("SELECT channel_name FROM t", "no such column: channel_name", "SELECT channel FROM t", OTHER),
        ("SELECT nam FROM t", "no such column: nam", "SHOW COLUMNS FROM t", OTHER),
        ("UPDATE t SET b = 1; UPDATE t SET bb = 2", "no such column: bb", "UPDATE t SET b = 2", HAPPENED),
        ("INSERT INTO t VALUES (1)", "UNIQUE constraint failed: t.a", "INSERT INTO t VALUES (2)", HAPPENED),
    ],
)
def test_statements_that_a_database_could_not_read(
    failed: str, told: str, correction: str, expected: Unwarranted | None
) -> None:
    assert reason("sql", {"query": failed}, f"Error: {told}", {"query": correction}) == expected


def test_what_is_refused_whatever_the_call_is() -> None:
    sql = {"query": "SELECT a FROM t"}
    assert reason("sql", sql, "Error: no such column: a", sql) == Unwarranted.REPEATED
    assert reason("sql", sql, "The user doesn't want to proceed with this tool use.", {"query": "SELECT b FROM t"}) == (
        Unwarranted.DENIED
    )
    long = {"code": "(" + "1, " * LONGEST}
    assert reason("python", long, "SyntaxError: '(' was never closed", {"code": "1"}) == Unwarranted.DISSIMILAR


@pytest.mark.parametrize(
    ("failed", "told", "correction", "same"),
    [
        (
            "print(1 + sqrt(2))",
            "NameError: name 'sqrt' is not defined",
            "from math import sqrt\nprint(1 + sqrt(2))",
            True,
        ),
        ("print(hit)", "NameError: name 'hit' is not defined", "print(hits)", True),
        ("print(1 + y)", "NameError: name 'y' is not defined", "print(1 + 1)", False),
        ("print(exp(1) * n)", "NameError: name 'n' is not defined", "print(1)", False),
        ("print(a[hit], 2)", "NameError: name 'hit' is not defined", "print(b['city'], 3)", False),
        ("print(a < hit)", "NameError: name 'hit' is not defined", "print(a > hits)", False),
        ("print(b)", "NameError: name 'b' is not defined", "b = 5\nprint(b)", False),
        ("x = (", "SyntaxError", "x = ()", False),
    ],
)
def test_a_program_that_ran_is_corrected_only_by_the_same_one(
    failed: str, told: str, correction: str, same: bool
) -> None:
    assert same_program(failed, correction, told) is same
    assert same_program(failed, correction, f"Traceback …\n{told}") is same


IMPORTED = Step("I add.", (py("print(sqrt(4))", NAME.replace("'y'", "'sqrt'")),))
WITH_IMPORT = Step("With it.", (py("from math import sqrt\nprint(sqrt(4))", "2.0"),))


def purified(*steps: Step, replayed: bool = False) -> Any:
    log = read_record(openai(Case("one", steps, ())), "openai", 0, Reading())
    return purify_log(log, RepairConfig(), replayed=replayed)


def test_an_edit_says_by_what_it_was_accepted() -> None:
    (edit,) = (edit for _, edit in purified(SLIP, FIX).trajectory.edits)
    assert edit.accepted_by == NOTHING_HAPPENED
    assert not purified(IMPORTED, WITH_IMPORT).trajectory.edits
    (edit,) = (edit for _, edit in purified(IMPORTED, WITH_IMPORT, replayed=True).trajectory.edits)
    assert edit.accepted_by == REPLAY
    (edit,) = (
        edit for _, edit in purified(IMPORTED, SLIP, WITH_IMPORT, replayed=True).trajectory.edits or ((0, edit),)
    )
    assert edit.accepted_by == REPLAY


def test_a_name_that_somebody_gave_stays() -> None:
    done = purified(SLIP, FIX).trajectory
    (first, *rest) = done.turns
    named = replace(first, edit=replace(first.edit, accepted_by="ann"))
    again = purify_log(replace(done, turns=(named, *rest)), RepairConfig()).trajectory
    assert [edit.accepted_by for _, edit in again.edits] == ["ann"]
    assert len(undo(again, 0).turns) == 2


def test_a_slip_in_one_of_several_calls_is_compared_with_the_call_in_its_place() -> None:
    failed, worked = ("print(1 + )", "print(1 + 1)"), ("print(1 + 1)", "print(1 + 1)")
    told = ToolResult(Status.OK, "2")
    turns = []
    for codes in (failed, worked):
        calls = tuple(call("python", {"code": code}) for code in codes)
        results = (
            (turn("python", {"code": codes[0]}, SLIP.calls[0].text).results[0], told)
            if codes is failed
            else (told,) * 2
        )
        turns.append(Turn(TextSpan(""), TextSpan(""), TextSpan(""), calls, results))
    assert unwarranted(*turns) is None
    assert Warrant(Trajectory(TextSpan(""), tuple(turns)), RepairConfig())(range(1), 0) is None


def test_the_target_of_a_tool_that_is_not_known_is_its_values() -> None:
    one, other = call("turn_on", {"room": "hall", "level": 3}), call("turn_on", {"level": 3, "place": "hall"})
    assert same_target(one, other, "")
    assert not same_target(one, call("turn_on", {"room": "hall", "level": 4}), "")

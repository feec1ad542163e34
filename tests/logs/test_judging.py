"""Whether a logged call worked: from fields, from text, or not at all."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.log_judging import figures
from cleaner_rl.logs.formats import Reading
from cleaner_rl.logs.judging import By, Judged, judge_call, read_text
from cleaner_rl.logs.tracebacks import ending_traceback
from cleaner_rl.tools import CallKind, ExceptionInfo, Status, ToolCall
from tests.logs.cases import raised

TOOLS = Reading().tools
ALL_IS_WELL: list[dict[str, Any]] = [
    {"is_error": False},
    {"isError": False},
    {"status": "success"},
    {"status": "completed"},
]


def judged(
    text: str, tool: str = "python", no_error_means_success: bool = False, arguments: Any = None, **fields: Any
) -> Judged:
    call = TOOLS.call(tool, {} if arguments is None else arguments, 0, 0)
    return judge_call(call, text, fields, no_error_means_success=no_error_means_success)


def test_the_error_rate_on_the_labelled_results_is_the_documented_one() -> None:
    found = figures()
    assert sum(count["examples"] for count in found.values()) >= 190
    # Those that their text can't tell: a traceback printed as the last words, an exit code that nothing is said of.
    assert sum(count["wrongly_failed"] for count in found.values()) == 2
    assert sum(count["wrongly_ok"] for count in found.values()) == 6


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"is_error": True}, Status.ERROR),
        ({"isError": False}, Status.OK),
        ({"exit_code": 0}, Status.OK),
        ({"returncode": 2}, Status.ERROR),
        ({"status": "timeout"}, Status.TIMEOUT),
        ({"status": "success"}, Status.OK),
        ({"error": {"type": "timeout", "message": "late"}}, Status.TIMEOUT),
        ({"error": {"type": "parsing", "message": "bad"}}, Status.MALFORMED),
        ({"error": {"type": "sandbox_unavailable", "message": "gone"}}, Status.FAULT),
        ({"error": "it broke"}, Status.ERROR),
    ],
)
def test_a_field_decides_whatever_the_text_says(fields: dict[str, Any], status: Status) -> None:
    raising = () if fields in ALL_IS_WELL else (raised("ValueError: x"),)
    for text in ("all well", *raising, ""):
        found = judged(text, **fields)
        assert found.by is By.FIELD
        assert found.result is not None
        assert found.result.status is status


@pytest.mark.parametrize("fields", ALL_IS_WELL)
def test_a_program_s_traceback_is_unsure_where_a_flag_says_that_all_is_well(fields: dict[str, Any]) -> None:
    for tool in ("python", "bash"):
        assert judged(raised("ValueError: x"), tool, **fields) == Judged(None, By.NOTHING)
        assert judged(raised("ValueError: x"), tool, exit_code=0, **fields).by is By.FIELD
    assert judged(raised("ValueError: x"), "read_file", **fields).by is By.FIELD


def test_no_error_is_a_success_where_errors_have_a_field_but_not_of_programs() -> None:
    assert judged("Error handling, chapter 1", "read_file", no_error_means_success=True).result is not None
    assert judged("Error handling, chapter 1", "read_file").result is None
    assert (
        judged(raised("ValueError: x"), no_error_means_success=True, error=None).result
        == judged(raised("ValueError: x")).result
    )
    assert judged("bash: x: command not found", "bash", no_error_means_success=True).result is None


def test_what_was_printed_and_the_exception_are_told_apart() -> None:
    text = raised("ValueError: bad value", before="1\n2\n")
    result = judged(text).result
    assert result is not None
    assert (result.status, result.output) == (Status.ERROR, "1\n2\n")
    assert result.exception == ExceptionInfo("ValueError", "bad value")


def test_a_malformed_call_is_one_unless_somebody_could_read_it() -> None:
    broken = '{"code": "print(1)'
    found = judged("Invalid JSON in tool call", arguments=broken).result
    assert found is not None
    assert found.status is Status.MALFORMED
    assert judged("1", arguments=broken).result is None


@pytest.mark.parametrize(
    ("text", "exception"),
    [
        (raised("Oops: custom"), ExceptionInfo("Oops", "custom")),
        (raised("__main__.Oops: custom"), ExceptionInfo("__main__.Oops", "custom")),
        (raised("AssertionError"), ExceptionInfo("AssertionError", "")),
        (raised("ValueError: two:\n  lines"), ExceptionInfo("ValueError", "two:\n  lines")),
        (
            "----------------------------------------\nNameError    Traceback (most recent call last)\n"
            "Cell In[1], line 1\n----> 1 print(y)\n\nNameError: name 'y' is not defined",
            ExceptionInfo("NameError", "name 'y' is not defined"),
        ),
        ("  Cell In[2], line 1\n    1 +\n       ^\nSyntaxError: invalid", ExceptionInfo("SyntaxError", "invalid")),
        (raised("ValueError: x") + "\nand on it goes", None),
        (raised("ValueError: x") + "\n\n1 failed", None),
        ("Traceback (most recent call last):", None),
        ("Traceback (most recent call last):\n  File", None),
        ("no traceback", None),
        ("", None),
    ],
)
def test_a_traceback_counts_if_the_text_ends_with_it(text: str, exception: ExceptionInfo | None) -> None:
    found = ending_traceback(text)
    assert (None if found is None else found[1]) == exception


COLOURED = (
    "\x1b[0;31m---------------------------------------------------------------------------\x1b[0m\n"
    "\x1b[0;31mZeroDivisionError\x1b[0m                         Traceback (most recent call last)\n"
    "Cell \x1b[0;32mIn[1], line 1\x1b[0m\n\x1b[0;32m----> 1\x1b[0m \x1b[38;5;241;43m1\x1b[39;49m/0\n\n"
    "\x1b[0;31mZeroDivisionError\x1b[0m: division by zero"
)


def test_colours_hide_no_traceback_and_stay_in_what_was_printed() -> None:
    printed = "\x1b[32mbegun\x1b[0m\n"
    result = judged(printed + COLOURED).result
    assert result is not None
    assert (result.status, result.output) == (Status.ERROR, printed)
    assert result.exception == ExceptionInfo("ZeroDivisionError", "division by zero")
    assert judged(COLOURED, is_error=False) == Judged(None, By.NOTHING)
    assert judged("\x1b[31mValueError: x\x1b[0m").result is None
    well = judged(printed).result
    assert well is not None
    assert (well.status, well.output) == (Status.OK, printed)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"stdout": "", "stderr": raised("NameError: x"), "exit_code": 1}),
        json.dumps({"success": False, "error": "NameError: x"}),
        json.dumps({"status": "timeout"}),
        json.dumps({"result": raised("NameError: x")}),
        f"stderr: {raised('NameError: x')}\n[exit code 1]",
        f"<stderr>{raised('NameError: x')}\n</stderr>",
    ],
)
def test_a_failure_that_a_tool_wraps_is_unsure_of_python(text: str) -> None:
    assert judged(text) == Judged(None, By.NOTHING)


@pytest.mark.parametrize("value", [{"error": None, "value": 3}, {"stdout": "3", "exit_code": 0}, {"success": True}])
def test_an_object_that_says_all_is_well_is_ok(value: dict[str, Any]) -> None:
    for tool in ("python", "calculator"):
        result = judged(json.dumps(value), tool).result
        assert result is not None
        assert result.status is Status.OK


def test_chained_tracebacks_are_one() -> None:
    first, second = raised("KeyError: 'x'", before="out\n"), raised("RuntimeError: y")
    text = f"{first}\n\nThe above exception was the direct cause of the following exception:\n\n{second}\n"
    assert ending_traceback(text) == (4, ExceptionInfo("RuntimeError", "y"))
    apart = f"{first}\nhandled\n{second}"
    assert ending_traceback(apart) == (len(first) + len("\nhandled\n"), ExceptionInfo("RuntimeError", "y"))


def called(kind: CallKind) -> ToolCall:
    return ToolCall(kind, {}, "", 0, 0, kind=kind)


@given(st.text(), st.sampled_from(CallKind))
def test_any_text_gets_an_answer_or_none(text: str, kind: CallKind) -> None:
    assert read_text(text, called(kind)) in (None, *Status)


@given(st.text(st.characters(categories=["Nd", "Zs", "Pd"], include_characters="\n.,()[]"), min_size=1))
def test_numbers_are_no_failure(text: str) -> None:
    for kind in CallKind:
        assert read_text(text, called(kind)) in (None, Status.OK)

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner_rl.tools import Blame, ExceptionInfo, Status, ToolResult, feedback
from cleaner_rl.tools.feedback import shorten


@pytest.mark.parametrize("status", Status)
def test_every_status_has_one_owner(status: Status) -> None:
    expected = {Status.OK: Blame.NOBODY, Status.FAULT: Blame.INFRASTRUCTURE}.get(status, Blame.MODEL)
    result = ToolResult(status)
    assert status.blame is expected
    assert result.failed == (expected is Blame.MODEL)
    assert result.faulty == (expected is Blame.INFRASTRUCTURE)


def test_s1_a_program_can_print_any_word_and_changes_nothing() -> None:
    lying = ToolResult(Status.ERROR, "Tool call success\n", exception=ExceptionInfo("ZeroDivisionError", "x", 1))
    honest = ToolResult(Status.OK, "mean squared error: 0.1\nTraceback (most recent call last)\n")
    assert lying.failed
    assert not honest.failed


def test_what_two_runs_must_agree_on_has_no_duration_and_no_version() -> None:
    quick = ToolResult(Status.OK, "1", seconds=0.1, versions={"python": "3.11"})
    slow = ToolResult(Status.OK, "1", seconds=9.0, versions={"python": "3.12"})
    assert quick.observed == slow.observed
    for other in (
        ToolResult(Status.ERROR, "1"),
        ToolResult(Status.OK, "2"),
        ToolResult(Status.OK, "1", "warning"),
        ToolResult(Status.OK, "1", exception=ExceptionInfo("E")),
        ToolResult(Status.OK, "1", explanation="said"),
        ToolResult(Status.OK, "1", output_length=9),
    ):
        assert quick.observed != other.observed


SEEN = st.fixed_dictionaries(
    {"status": st.sampled_from(Status), "output": st.text(max_size=2)},
    optional={
        "stderr": st.text(max_size=2),
        "exception": st.builds(ExceptionInfo, st.sampled_from(["A", "B"]), line=st.none() | st.integers(1, 2)),
        "explanation": st.text(max_size=2),
        "output_length": st.integers(0, 3),
        "seconds": st.floats(0, 1),
    },
)


@given(SEEN, SEEN)
def test_results_that_the_model_sees_differently_are_observed_differently(
    one: dict[str, Any], more: dict[str, Any]
) -> None:
    result = ToolResult(**one)
    for name in more:
        other = ToolResult(**{**one, name: more[name]})
        assert (feedback(result) == feedback(other)) or result.observed != other.observed


def test_feedback_of_success_is_the_output_alone() -> None:
    assert feedback(ToolResult(Status.OK, "1\n2\n")) == "1\n2"
    assert feedback(ToolResult(Status.OK, "1\n", stderr="a warning\n")) == "1\na warning"
    assert feedback(ToolResult(Status.OK)) == ""


def test_feedback_of_an_exception_keeps_partial_output_and_names_the_line() -> None:
    exception = ExceptionInfo("KeyError", "'a'", 3)
    assert feedback(ToolResult(Status.ERROR, "1\n", exception=exception)) == "1\nKeyError: 'a' (line 3)"
    assert feedback(ToolResult(Status.ERROR, exception=ExceptionInfo("KeyError", "'a'"))) == "KeyError: 'a'"
    traced = ExceptionInfo("KeyError", "'a'", 3, "Traceback:\n  line 3\nKeyError: 'a'\n")
    assert feedback(ToolResult(Status.ERROR, exception=traced)) == "Traceback:\n  line 3\nKeyError: 'a'"


@pytest.mark.parametrize("status", [each for each in Status if each is not Status.OK])
def test_feedback_of_every_failure_says_something_constant(status: Status) -> None:
    words = feedback(ToolResult(status, "partial"))
    assert words.startswith("partial\n")
    assert len(words.split("\n")[1]) > 10
    assert feedback(ToolResult(status, explanation="It is so.")) == "It is so."


def test_s21_a_long_output_is_cut_in_the_middle_with_both_lengths_and_its_end_kept() -> None:
    output = "head" + "x" * 10_000 + "ValueError: the end"
    result = ToolResult(Status.ERROR, output)
    words = feedback(result, limit=256)
    assert words.startswith("head")
    assert f"[cut: 256 of {len(output)} characters shown]" in words
    assert "ValueError: the end" in words
    assert result.failed, "the trigger looks at the status, not at the cut text"


def test_shorten_says_what_somebody_else_cut() -> None:
    assert shorten("abc", 3) == "abc"
    assert shorten("abc", 3, full_length=3) == "abc"
    assert shorten("abc", 3, full_length=9) == "abc\n[cut: 3 of 9 characters shown]"
    assert shorten("abcde", 3) == "a\n[cut: 3 of 5 characters shown]\nde"
    assert shorten("abcde", 2, full_length=50) == "a\n[cut: 2 of 50 characters shown]\ne"

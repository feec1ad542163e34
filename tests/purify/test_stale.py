from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner_rl.purify.stale import later_mentions, stale_mentions
from cleaner_rl.tools import ExceptionInfo, Status, ToolResult
from tests.builders import error

FAILURE = error("ValueError", "math domain error")


@pytest.mark.parametrize(
    ("reasoning", "words"),
    [
        ("The error was a missing bracket.", ("The error",)),
        ("Oh, my silly mistake! I try again.", ("my silly mistake", "try again")),
        ("The previous attempt did not convert.", ("previous attempt",)),
        ("Fixing the failed code.", ("failed code",)),
        ("error message says so", ("error message says",)),
        ("It crashed, so I change it.", ("It crashed",)),
        ("We get a ValueError: math domain error here.", ("ValueError", "math domain error")),
        ("First attempt, then the first attempt.", ("First attempt", "first attempt")),
    ],
)
def test_s24_talk_of_an_error_is_found_in_its_words(reasoning: str, words: tuple[str, ...]) -> None:
    assert stale_mentions(reasoning, [FAILURE]) == words


@pytest.mark.parametrize(
    "reasoning",
    [
        "I compute the mean squared error of the fit.",
        "Let me compute the sum of the first ten primes.",
        "A TypeError is impossible here.",
        "",
    ],
)
def test_plain_reasoning_is_left_alone(reasoning: str) -> None:
    clean = reasoning.replace("the mean squared error", "mean squared error")
    assert stale_mentions(clean, [FAILURE]) == ()


def test_a_failure_without_an_exception_and_a_short_message_name_nothing() -> None:
    timeout = ToolResult(Status.TIMEOUT)
    short = ToolResult(Status.ERROR, exception=ExceptionInfo("KeyError", "'abc"))
    six = ToolResult(Status.ERROR, exception=ExceptionInfo("KeyError", "'abcd'"))
    assert stale_mentions("x is 'abc here", [timeout, short]) == ()
    assert stale_mentions("x is 'abcd' here", [six]) == ("'abcd'",)


def test_every_failure_is_looked_for_wherever_it_stands() -> None:
    failures = [ToolResult(Status.TIMEOUT), FAILURE, error("KeyError", "'missing key'")]
    text = "ValueError first, KeyError next, and ValueError again."
    assert stale_mentions(text, failures) == ("ValueError", "KeyError")


def test_mentions_come_in_order_and_once() -> None:
    text = "The bug: ValueError. The bug again: ValueError."
    assert stale_mentions(text, [FAILURE, FAILURE]) == ("The bug", "ValueError")


NAMES = st.sampled_from(["Error", "KeyError", "a message", "x" * 6, "xxx\nxxx", ""])
FAILURES = st.builds(error, NAMES, NAMES) | st.just(ToolResult(Status.TIMEOUT))
REASONINGS = st.lists(st.sampled_from(["Key", "Error", " a mess", "age", "xxx", "\n", "", "y"]), max_size=6).map(
    "".join
)


@given(st.lists(st.tuples(REASONINGS, st.lists(FAILURES, max_size=3)), max_size=6))
def test_later_mentions_are_what_each_later_turn_holds(turns: list[tuple[str, list[ToolResult]]]) -> None:
    reasonings, failures = [reasoning for reasoning, _ in turns], [failed for _, failed in turns]
    expected = []
    for index, failed in enumerate(failures):
        exceptions = [each.exception for each in failed if each.exception is not None]
        names = [name for each in exceptions for name in (each.type, each.message)]
        long = [name for place, name in enumerate(names) if name and (place % 2 == 0 or len(name) >= 6)]
        found = (name for reasoning in reasonings[index + 1 :] for name in long if name in reasoning)
        expected.append(tuple(dict.fromkeys(found)))
    assert list(later_mentions(reasonings, failures)) == expected

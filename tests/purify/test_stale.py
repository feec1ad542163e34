from __future__ import annotations

import pytest

from cleaner_rl.purify import stale_mentions
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

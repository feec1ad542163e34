"""Results and observations in text: what regular expressions say they are, in time that grows with the text alone."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cleaner_rl.logs.calls import beside_results, text_results
from cleaner_rl.logs.formats.verl import observations, prompt_parts
from cleaner_rl.logs.messages import Unreadable

RESULT = re.compile(r"<tool_response>\n?(.*?)\n?</tool_response>", re.DOTALL)
OBSERVATION = re.compile(
    r"(?:<\|im_end\|>)?\n(?:<\|im_start\|>)?(?:user|tool)\n"
    r"<tool_response>\n.*?\n</tool_response>"
    r"(?P<words>(?:<\|im_end\|>)?\n(?:<\|im_start\|>)?user\n(?!<tool_response>).*?)?"
    r"(?:(?:<\|im_end\|>)?\n?(?:<\|im_start\|>)?assistant\n|(?:<\|im_end\|>)?\n?\Z)",
    re.DOTALL,
)
PROMPT = re.compile(
    r"(?:(?:<\|im_start\|>)?system\n(?P<system>.*?)(?:<\|im_end\|>)?\n)?(?:<\|im_start\|>)?user\n(?P<user>.*?)"
    r"(?:<\|im_end\|>)?\n(?:<\|im_start\|>)?assistant\n(?P<begun>(?:<think>\n(?:\n</think>\n\n)?)?)",
    re.DOTALL,
)
"""Said in one expression, each begins anew at every opening, and takes time that grows with the square of a text."""
PIECES = [
    "\n",
    "x",
    "<tool_response>",
    "\n</tool_response>",
    "</tool_response>",
    "<|im_start|>",
    "<|im_end|>",
    "user\n",
    "\ntool\n",
    "assistant\n",
    "system\n",
    "<think>\n",
    "\n</think>\n\n",
    "\nuser\n<tool_response>\n1\n</tool_response>",
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)


@given(TEXTS)
def test_results_are_what_stands_between_their_tags(text: str) -> None:
    assert list(text_results(text)) == [found[1] for found in RESULT.finditer(text)]
    assert beside_results(text) == RESULT.sub("", text)


@given(TEXTS)
def test_observations_are_results_and_what_a_user_says_behind_them(text: str) -> None:
    expected = [(found.start(), found.end(), found["words"] or "") for found in OBSERVATION.finditer(text)]
    assert list(observations(text)) == expected


@given(TEXTS)
@example("system\nS\nuser\nU\nassistant\n")
@example("system\nS\nuser\nU\nassistant\n<think>\n")
@example("<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n")
@example("user\nU\nassistant\nA\nuser\nU\nassistant\n")
@example("system\n\nS")
@example("No template at all.")
def test_a_prompt_is_a_system_s_words_and_a_user_s_or_no_template_at_all(text: str) -> None:
    found = PROMPT.fullmatch(text)
    system, user, begun = (None, text, "") if found is None else (found["system"], found["user"], found["begun"])
    lines = [line.removeprefix("<|im_start|>") for line in user.split("\n")]
    if "user" in lines or "assistant" in lines or lines[0] == "system":
        with pytest.raises(Unreadable, match="template"):
            prompt_parts(text)
    else:
        assert prompt_parts(text) == (system, user, begun)


def seconds(scan: Callable[[str], Iterable[object]], text: str) -> float:
    times = []
    for _ in range(3):
        begun = time.process_time()
        with suppress(Unreadable):
            list(scan(text))
        times.append(time.process_time() - begun)
    return min(times)


@pytest.mark.parametrize(
    ("scan", "before", "repeated"),
    [
        (text_results, "", "<tool_response>\n"),
        (beside_results, "", "<tool_response>\n"),
        (observations, "", "\nuser\n<tool_response>\n"),
        (observations, "", "\nuser\n<tool_response>\n1\n</tool_response> x"),
        (observations, "", "\nuser\n<tool_response>\n1\n</tool_response>\nuser\nhello "),
        (prompt_parts, "system\n", "\nuser\n"),
    ],
)
def test_texts_made_to_be_slow_are_not(scan: Callable[[str], Iterable[object]], before: str, repeated: str) -> None:
    small, large = (seconds(scan, before + repeated * count) for count in (2_000, 16_000))
    assert large < 24 * small + 0.05, "8 times the text takes 8 times the time; 64 times if it grew with the square"

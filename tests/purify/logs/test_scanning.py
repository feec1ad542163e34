"""Results and observations in text: what regular expressions say they are, in time that grows with the text alone."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner_rl.purify.logs.calls import beside_results, text_results
from cleaner_rl.purify.logs.formats.verl import observations, prompt_parts

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
    r"(?:<\|im_end\|>)?\n(?:<\|im_start\|>)?assistant\n",
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
def test_a_prompt_is_a_system_s_words_and_a_user_s(text: str) -> None:
    found = PROMPT.fullmatch(text)
    assert prompt_parts(text) == ((None, text) if found is None else (found["system"], found["user"]))


def seconds(scan: Callable[[str], Iterable[object]], text: str) -> float:
    times = []
    for _ in range(3):
        begun = time.process_time()
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

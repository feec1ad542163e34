"""Thinking is taken out before an answer is looked for."""

from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner_rl.tasks import ChoiceGrader, CodeGrader, Grade, Grader, Outcome, Task, grade
from cleaner_rl.tasks.grading import without_thinking
from tests.tasks.builders import task

HARMONY = "<|channel|>analysis<|message|>Maybe C?{}<|start|>assistant<|channel|>final<|message|>{}<|return|>"
PAIRS = [
    ("<think>", "</think>"),
    ("<Thinking>", "</Thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("◁think▷", "◁/think▷"),
]
WORDS = st.text("ab \n<>/[]|{}\\", max_size=40)


@pytest.mark.parametrize(("begin", "end"), PAIRS)
def test_what_is_between_markers_is_no_answer(begin: str, end: str) -> None:
    assert without_thinking(f"{begin}\\boxed{{7}}{end}Then 8.") == "Then 8."
    assert without_thinking(f"Well. {begin}\\boxed{{7}}{end} Then {begin}{end}8.") == "Well.  Then 8."
    assert without_thinking(f"{begin}\\boxed{{7}}? No, that is wrong, because") is None
    assert without_thinking(f"\\boxed{{7}} {begin}Let me check") is None
    assert without_thinking(f"\\boxed{{7}}{end}Then 8.") == "Then 8."


@given(st.sampled_from(PAIRS), WORDS, WORDS)
def test_only_what_follows_the_last_marker_decides(pair: tuple[str, str], thought: str, said: str) -> None:
    begin, end = pair
    assert without_thinking(f"{begin}{thought}{end}{said}") == said
    assert without_thinking(f"{thought}{end}{said}") == said
    assert without_thinking(f"{begin}{thought}{end}{said}{begin}{thought}") is None


@given(WORDS)
def test_a_text_without_markers_stays_as_it_is(text: str) -> None:
    assert without_thinking(text) == text


def test_markers_of_another_kind_close_nothing() -> None:
    assert without_thinking("<think>a</thinking>b</think>c") == "c"
    assert without_thinking("<think>a[/THINK]b") is None
    assert without_thinking("<think>one <think>two</think> three</think> four") == " four"


def test_of_harmony_only_the_final_channel_is_an_answer() -> None:
    assert without_thinking(HARMONY.format("<|end|>", "It is D.")) == "It is D."
    assert without_thinking("<|channel|>analysis<|message|>\\boxed{7}") is None
    assert without_thinking("<|channel|>analysis<|message|>\\boxed{7}<|end|>") is None
    assert (
        without_thinking("<|channel|>final<|message|>7<|end|><|start|>assistant<|channel|>analysis<|message|>") is None
    )
    assert without_thinking("<|channel|>final") is None


def test_what_a_tool_said_is_no_answer() -> None:
    assert without_thinking("<tool_response>\\boxed{5}</tool_response>I don't know.") == " I don't know."
    assert without_thinking("a <tool_response>b</tool_response>c</tool_response> d") == "a  c  d"


class Echo:
    """A grader of somebody else's: everything is right, and shown."""

    async def grade(self, task: Task, text: str) -> Grade:
        return Grade(Outcome.RIGHT, text)


@pytest.mark.parametrize("name", ["choice", "code", "echo"])
def test_no_grader_sees_thinking_and_cut_off_thinking_is_wrong(name: str) -> None:
    async def execute(run: object) -> object:
        raise AssertionError("a program was run")

    graders: dict[str, Grader] = {
        "choice": ChoiceGrader(),
        "code": CodeGrader(execute),  # type: ignore[arg-type]
        "echo": Echo(),
    }
    cut = asyncio.run(grade(task(name, "C"), "<think>\\boxed{C}\n```python\nx\n```\nNo, because", graders))
    assert (cut.outcome, cut.extracted) == (Outcome.WRONG, None)
    assert "thinking" in cut.reason
    said = asyncio.run(grade(task("echo"), "<think>\\boxed{C}</think>D", graders))
    assert said.extracted == "D"


@pytest.mark.parametrize(
    "text",
    [
        "<think>" * 100_000,
        "</think>" * 100_000,
        "<|channel|>" * 50_000,
        "<tool_response>" * 50_000,
        "<think>a</think>" * 50_000,
    ],
    ids=["opened", "closed", "channels", "tools", "pairs"],
)
@pytest.mark.usefixtures("untraced")
def test_texts_made_to_be_slow_are_not(text: str) -> None:
    begun = time.process_time()
    without_thinking(text)
    assert time.process_time() - begun < 5

"""One letter or none."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner_rl.tasks import ChoiceGrader, Message, Outcome, Task
from cleaner_rl.tasks.grading import choice_letter
from tests.tasks.builders import task

OPTIONS = "Which?\n\nA) one\nB) two\nC) three\nD) four\nE) five"
LOOKS = ("{}", "({})", "**{}**", "`{}`", "\\text{{{}}}", "\\textbf{{({})}}", "[{}]", " {} ", "{}.", "${}$", "Option {}")
HEDGES = ("{} or {}", "{}, {}", "{}/{}", "{} and {}", "{} ({})", "{} (or {})", "{}; or maybe {}", "{} & {}", "{} {}")


@given(st.sampled_from("ABCDEFGHIJ"), st.lists(st.sampled_from(LOOKS), max_size=2, unique=True))
def test_looks_change_no_letter(letter: str, looks: list[str]) -> None:
    dressed = letter
    for look in looks:
        dressed = look.format(dressed)
    assert choice_letter(f"So \\boxed{{{dressed}}}.") == letter
    assert choice_letter(f"The answer is {dressed}") == letter


@given(st.sampled_from("BCDEFGHJ"), st.sampled_from("BCDEFGHJ"), st.sampled_from(HEDGES))
def test_two_letters_are_none(one: str, other: str, hedge: str) -> None:
    wanted = one if one == other else None
    for text in ("\\boxed{{{}}}", "The answer is {}.", "The correct option is {}", "{}"):
        said = choice_letter(text.format(hedge.format(one, other)))
        assert said == wanted or (said is None and one == other)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("\\boxed{c}", "C"),
        ("\\boxed{C is right}", "C"),
        ("\\boxed{C (D is wrong)}", "C"),
        ("\\boxed{A number}", None),
        ("\\boxed{A B C D}", None),
        ("The correct option is C", "C"),
        ("Option C is the correct answer.", "C"),
        ("I choose C.", "C"),
        ("answer: c", "C"),
        ("The answer is a", None),
        ("The answer is I think C", None),
        ("The answer is C-14", None),
        ("The answer is C. Wait, actually it is D.", None),
        ("The answer is D. Wait, the answer is C.", "C"),
        ("The answer is (D), not (C)", "D"),
        ("First B. Then C.\n\n**D**", "D"),
        ("Neither.", None),
        ("\\boxed{K}", None),
    ],
)
def test_a_letter_is_chosen_clearly_or_not_at_all(text: str, wanted: str | None) -> None:
    assert choice_letter(text) == wanted


def test_the_letters_are_the_tasks() -> None:
    grader = ChoiceGrader()
    listed = task("choice", "E", question=OPTIONS)
    assert grader.letters(listed) == "ABCDE"
    assert grader.letters(task("choice", "E")) == "ABCDEFGHIJ"
    said = Task("made/2", (Message("user", "?"),), "choice", "P", extra={"letters": "PQ"})
    assert grader.letters(said) == "PQ"
    assert asyncio.run(grader.grade(said, "\\boxed{Q}")).outcome is Outcome.WRONG
    assert asyncio.run(grader.grade(listed, "\\boxed{F}")).extracted is None
    beyond = asyncio.run(grader.grade(task("choice", "F", question=OPTIONS), "\\boxed{F}"))
    assert (beyond.outcome, beyond.task_fault) == (Outcome.FAULT, True)


@pytest.mark.parametrize("truth", ["C", "c", " C ", "(C)", "C."])
def test_a_reference_may_be_written_in_several_ways(truth: str) -> None:
    assert asyncio.run(ChoiceGrader().grade(task("choice", truth), "\\boxed{C}")).outcome is Outcome.RIGHT

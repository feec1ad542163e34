"""What every grader must do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from cleaner_rl.tasks import Grade, Grader, Outcome, Task

JUNK = ("", " \n", "\x00\ud800", "I don't know.", "9" * 5_000, "\\boxed{" * 50, "```python\n", "é 𝒳 </think>")
TOGETHER = 8


class GraderContract:
    """Subclass it, name the subclass `Test…`, and give `make`, `right`, `wrong` and, if it can be, `unreadable`."""

    def make(self) -> Grader:
        """The grader; called inside a running event loop."""
        raise NotImplementedError

    def right(self) -> Sequence[tuple[Task, str]]:
        """Tasks, each with a final turn that solves it."""
        raise NotImplementedError

    def wrong(self) -> Sequence[tuple[Task, str]]:
        """Tasks, each with a final turn that doesn't."""
        raise NotImplementedError

    def unreadable(self) -> Sequence[Task]:
        """Tasks whose `truth` the grader can't make sense of."""
        return ()

    def test_right_and_wrong_are_told_apart(self) -> None:
        """The author's own examples."""
        assert self.right(), "give at least one example of a right answer"
        assert self.wrong(), "give at least one example of a wrong answer"
        for wanted, examples in ((Outcome.RIGHT, self.right()), (Outcome.WRONG, self.wrong())):
            for (task, text), grade in zip(examples, self._grades(examples), strict=True):
                assert grade.outcome is wanted, (
                    f"{text!r} for the truth {task.truth!r} is {grade.outcome}, not {wanted}: {grade.reason}"
                )

    def test_a_grade_has_a_reason_in_words(self) -> None:
        """A person who looks at a reward asks why."""
        for grade in self._grades([*self.right(), *self.wrong()]):
            assert grade.reason.strip(), f"a grade without a reason: {grade}"

    def test_junk_is_never_right_and_raises_nothing(self) -> None:
        """A model may write anything."""
        examples = [(task, text) for task, _ in self.right() for text in JUNK]
        for (task, text), grade in zip(examples, self._grades(examples), strict=True):
            assert grade.outcome is not Outcome.RIGHT, f"{text[:60]!r} was taken for an answer to task '{task.id}'"

    def test_what_it_cannot_judge_is_a_fault(self) -> None:
        """A reference that it can't read is not the model's doing: no reward, rather than a bad one."""
        examples = [(task, text) for task in self.unreadable() for text in ("", self.right()[0][1])]
        for (task, text), grade in zip(examples, self._grades(examples), strict=True):
            assert grade.outcome is not Outcome.RIGHT, f"task '{task.id}' has no readable truth, and {text!r} was right"
        for task in self.unreadable():
            grade = self._grades([(task, self.right()[0][1])])[0]
            assert grade.outcome is Outcome.FAULT, (
                f"the truth {task.truth!r} can't be read, and {grade.outcome} was said"
            )

    def test_the_same_answer_gets_the_same_grade(self) -> None:
        """One after the other, and many at once."""
        task, text = self.right()[0]
        grades = self._grades([(task, text)] * TOGETHER)
        assert all(grade == grades[0] for grade in grades), f"the same answer got {set(grades)}"

    def _grades(self, examples: Sequence[tuple[Task, str]]) -> list[Grade]:
        async def together() -> list[Grade]:
            grader = self.make()
            return list(await asyncio.gather(*(_one(grader, task, text) for task, text in examples)))

        return asyncio.run(together())


async def _one(grader: Grader, task: Task, text: str) -> Grade:
    try:
        grade = await grader.grade(task, text)
    except Exception as error:
        raise AssertionError(f"grade raised {error!r} on {text[:80]!r}; what can't be judged is a fault") from error
    assert isinstance(grade, Grade), f"grade gave {grade!r}, not a Grade"
    return grade

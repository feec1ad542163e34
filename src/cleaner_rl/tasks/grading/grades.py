"""What a grader says: right, wrong, or that it can't say.

A *fault* is the grader's own: its process was killed, a package is missing, the sandbox was down; or the task's, whose
reference can't be used. It has no reward, so nothing can be learnt from it by mistake; `count` keeps it in sight. An
answer that a grader can't finish because of its size, depth or cost is wrong, not a fault.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, TypeAlias, runtime_checkable

from cleaner_rl.tasks.task import Task


class Outcome(StrEnum):
    """Says whether an answer is right, wrong or could not be graded."""

    RIGHT = "right"
    WRONG = "wrong"
    FAULT = "fault"


class RewardScale(StrEnum):
    """The rewards of wrong and right answers whose grade has no score."""

    SIGNED = "signed"
    """{-1, 1}: the CLEANER recipes."""
    UNIT = "unit"
    """{0, 1}: GRPO-RoC's."""


@dataclass(frozen=True, slots=True)
class CaseVerdict:
    """The result of a program in one test case."""

    outcome: Outcome
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Grade:
    """A grader's verdict on one answer."""

    outcome: Outcome
    extracted: str | None = None
    """The answer as it was found in the text; None if none was."""
    reason: str = ""
    """One sentence for people; programs look at the outcome."""
    cases: tuple[CaseVerdict, ...] = ()
    """One verdict per test case up to the first wrong one, if the answer is a program."""
    task_fault: bool = False
    """Whether a fault is the task's, such as a reference that can't be read: grading again can't change it."""
    score: float | None = None
    """The reward, for graders that know more than right and wrong; None: the reward of the outcome, by the scale."""

    def reward(self, scale: RewardScale = RewardScale.SIGNED) -> float | None:
        """Return the reward; None for a fault, which is neither right nor wrong."""
        if self.outcome is Outcome.FAULT:
            return None
        if self.score is not None:
            return self.score
        if self.outcome is Outcome.RIGHT:
            return 1.0
        return -1.0 if RewardScale(scale) is RewardScale.SIGNED else 0.0


@runtime_checkable
class Grader(Protocol):
    """Grades the answer in a model's final turn."""

    async def grade(self, task: Task, text: str) -> Grade:
        """Return the grade of `text`. It raises nothing because of the answer: what can't be graded is a fault."""
        ...


RewardFunction: TypeAlias = Callable[[Task, str, Any], float | Grade | Awaitable[float | Grade]]
"""A plain function as a grader: of a task, the answer, and the rollout before any repair (a `Trajectory`)."""
AnyGrader: TypeAlias = Grader | RewardFunction


class WrongGradeError(TypeError):
    """A grader returned neither a grade nor a finite number: an error of the setup, which ends a run at once."""


@dataclass(frozen=True, slots=True)
class Count:
    """Counts of answers that were right, wrong or not graded, and why not."""

    right: int = 0
    wrong: int = 0
    faults: Mapping[str, int] = field(default_factory=dict)
    """Number of faults, by reason."""

    @property
    def share(self) -> float | None:
        """Return the share of right answers among those graded; None if none was."""
        judged = self.right + self.wrong
        return self.right / judged if judged else None


def count(grades: Iterable[Grade]) -> Count:
    """Count the grades; faults are counted apart from wrong answers."""
    outcomes: Counter[Outcome] = Counter()
    faults: Counter[str] = Counter()
    for grade in grades:
        outcomes[grade.outcome] += 1
        if grade.outcome is Outcome.FAULT:
            faults[grade.reason] += 1
    return Count(outcomes[Outcome.RIGHT], outcomes[Outcome.WRONG], dict(faults))

"""Judges final answers: right, wrong, or a fault of the grader's own.

- `grades`: what a grader says, its reward, and grades counted. A plain function may be a grader too.
- `thinking`: what of a text is thinking, and so no answer · `extraction`: where the answer is in the rest.
- `mathematics`, with `normalise`, `numbers`, `units` and `math_pool`: text, numbers, then algebra in killable processes
  (`math_worker`).
- `check`: what can't be graded, before anything is generated.
- `choice`: letters · `programs`, with `cases` and `runner`: test cases in a sandbox · `state`: what a session holds.

Other packages add graders with an entry point in the group `cleaner_rl.graders`: a class with the method of `Grader`,
made without arguments. A task names its grader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from inspect import isawaitable
from math import isfinite
from numbers import Real

from cleaner_rl.tasks.grading.cases import Case, Cases, call_case
from cleaner_rl.tasks.grading.check import UngradableError, check_gradable
from cleaner_rl.tasks.grading.choice import ChoiceGrader, choice_letter
from cleaner_rl.tasks.grading.extraction import boxed, program
from cleaner_rl.tasks.grading.grades import (
    AnyGrader,
    CaseVerdict,
    Count,
    Grade,
    Grader,
    Outcome,
    RewardFunction,
    RewardScale,
    WrongGradeError,
    count,
)
from cleaner_rl.tasks.grading.math_pool import MathPool
from cleaner_rl.tasks.grading.mathematics import MathGrader
from cleaner_rl.tasks.grading.programs import CodeGrader, CodeRun, Execute
from cleaner_rl.tasks.grading.state import StateGrader
from cleaner_rl.tasks.grading.thinking import without_thinking
from cleaner_rl.tasks.task import Task
from cleaner_rl.tools import Plugins

GRADERS: Plugins[Grader] = Plugins(
    group="cleaner_rl.graders",
    what="grader",
    # Loaded with what they are made of: `load("math", pool=...)`, `load("code", execute=...)`.
    ours={
        "choice": "cleaner_rl.tasks.grading.choice:ChoiceGrader",
        "code": "cleaner_rl.tasks.grading.programs:CodeGrader",
        "math": "cleaner_rl.tasks.grading.mathematics:MathGrader",
        "state": "cleaner_rl.tasks.grading.state:StateGrader",
    },
    needs=("grade",),
)

__all__ = [
    "GRADERS",
    "AnyGrader",
    "Case",
    "CaseVerdict",
    "Cases",
    "ChoiceGrader",
    "CodeGrader",
    "CodeRun",
    "Count",
    "Execute",
    "Grade",
    "Grader",
    "MathGrader",
    "MathPool",
    "Outcome",
    "RewardFunction",
    "RewardScale",
    "StateGrader",
    "UngradableError",
    "WrongGradeError",
    "boxed",
    "call_case",
    "check_gradable",
    "choice_letter",
    "count",
    "grade",
    "program",
    "without_thinking",
]

ATTEMPTS = 3
"""How often an answer is graded before a fault of its grader stays one."""
PAUSE = 0.5
"""Seconds before an answer is graded again; twice as long each time."""


async def grade(
    task: Task,
    text: str,
    graders: Mapping[str, AnyGrader],
    *,
    name: str = "",
    rollout: object = None,
    attempts: int = ATTEMPTS,
) -> Grade:
    """Grade a final turn with the task's own grader, or with the one of this name, without the thinking in it.

    A text that ended inside its thinking has no answer, and is wrong; a function is given an empty text then. If the
    grader has a fault or raises, the same text is graded again, up to `attempts` times in all; then the grade is a
    fault, and the run continues. If the task has a threshold, a grade with a score is right from there on.

    Args:
        task: The task.
        text: What the model wrote last.
        graders: Graders and plain functions, by name.
        name: The grader to ask; empty: the task's own.
        rollout: What plain functions are given beside the text: the rollout before any repair.
        attempts: How often it is graded before a fault of its grader stays one.

    Raises:
        LookupError: The grader is not among `graders`.
        WrongGradeError: It returned neither a `Grade` nor a finite number.

    Examples:
        >>> import asyncio
        >>> from cleaner_rl.tasks import ChoiceGrader, Message, Task, grade
        >>> task = Task("sky", (Message("user", "The sky is A) green or B) blue."),), grader="choice", truth="B")
        >>> asyncio.run(grade(task, "<think>A?</think> The answer is B.", {"choice": ChoiceGrader()})).outcome
        <Outcome.RIGHT: 'right'>
        >>> brief = lambda task, text, rollout: 1 / len(text.split())
        >>> asyncio.run(grade(task, "B, it is.", {"brief": brief}, name="brief")).score
        0.3333333333333333
    """
    name = name or task.grader
    if name not in graders:
        known = ", ".join(f"'{each}'" for each in graders) or "none"
        raise LookupError(f"task '{task.id}' needs the grader '{name}'; available: {known}")
    grader, said = graders[name], without_thinking(text)
    if said is None and isinstance(grader, Grader):
        return Grade(Outcome.WRONG, None, "The text ended inside its thinking, before an answer.")
    pause = PAUSE
    for attempt in range(attempts):
        judged = await _attempt(grader, name, task, said or "", rollout)
        if judged.outcome is not Outcome.FAULT or judged.task_fault or attempt == attempts - 1:
            break
        await asyncio.sleep(pause)
        pause *= 2
    return judged


async def _attempt(grader: AnyGrader, name: str, task: Task, text: str, rollout: object) -> Grade:
    try:
        said = grader.grade(task, text) if isinstance(grader, Grader) else grader(task, text, rollout)
        judged: object = await said if isawaitable(said) else said
    except Exception as error:  # anybody's grader
        return Grade(Outcome.FAULT, None, f"The grader '{name}' raised {type(error).__name__}: {error}")
    return _checked(judged, name, task)


def _checked(said: object, name: str, task: Task) -> Grade:
    """Return what a grader said as a grade, by the task's threshold; for a number it is 1 unless the task has one."""
    threshold = task.threshold
    judged = said
    if isinstance(said, Real):
        judged = Grade(Outcome.WRONG, None, f"The score is {float(said):g}.", score=float(said))
        threshold = 1.0 if threshold is None else threshold
    if not isinstance(judged, Grade) or not isfinite(judged.score or 0.0):
        raise WrongGradeError(
            f"the grader '{name}' returned {said!r} for task '{task.id}'; it must return a finite number or a Grade"
        )
    if judged.score is None or threshold is None or judged.outcome is Outcome.FAULT:
        return judged
    return replace(judged, outcome=Outcome.RIGHT if judged.score >= threshold else Outcome.WRONG)

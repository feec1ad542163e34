"""Judges final answers: right, wrong, or a fault of the grader's own.

- `grades`: what a grader says, its reward, and grades counted.
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

from cleaner_rl.tasks.grading.cases import Case, Cases, call_case
from cleaner_rl.tasks.grading.check import UngradableError, check_gradable
from cleaner_rl.tasks.grading.choice import ChoiceGrader, choice_letter
from cleaner_rl.tasks.grading.extraction import boxed, program
from cleaner_rl.tasks.grading.grades import CaseVerdict, Count, Grade, Grader, Outcome, RewardScale, count
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
    "RewardScale",
    "StateGrader",
    "UngradableError",
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


async def grade(task: Task, text: str, graders: Mapping[str, Grader]) -> Grade:
    """Grade a final turn with the task's own grader, without the thinking in it.

    A text that ended inside its thinking has no answer, and is wrong. If the grader has a fault or raises, the same
    text is graded again, up to three times in all; then the grade is a fault, and the run continues.

    Raises:
        LookupError: The task's grader is not among `graders`.

    Examples:
        >>> import asyncio
        >>> from cleaner_rl.tasks import ChoiceGrader, Message, Task, grade
        >>> task = Task("sky", (Message("user", "The sky is A) green or B) blue."),), grader="choice", truth="B")
        >>> asyncio.run(grade(task, "<think>A?</think> The answer is B.", {"choice": ChoiceGrader()})).outcome
        <Outcome.RIGHT: 'right'>
    """
    if task.grader not in graders:
        known = ", ".join(f"'{name}'" for name in graders) or "none"
        raise LookupError(f"task '{task.id}' needs the grader '{task.grader}'; available: {known}")
    said = without_thinking(text)
    if said is None:
        return Grade(Outcome.WRONG, None, "The text ended inside its thinking, before an answer.")
    pause = PAUSE
    for attempt in range(ATTEMPTS):
        judged = await _attempt(graders[task.grader], task, said)
        if judged.outcome is not Outcome.FAULT or judged.task_fault or attempt == ATTEMPTS - 1:
            break
        await asyncio.sleep(pause)
        pause *= 2
    return judged


async def _attempt(grader: Grader, task: Task, text: str) -> Grade:
    try:
        return await grader.grade(task, text)
    except Exception as error:  # anybody's grader
        return Grade(Outcome.FAULT, None, f"The grader '{task.grader}' raised {type(error).__name__}.")

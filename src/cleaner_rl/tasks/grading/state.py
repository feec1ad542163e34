"""What a rollout leaves behind: the task's check runs in its session after the last turn, and must print the truth.

The check and the setup are programs in the language of the task's tool: `extra["check"]` and `extra["setup"]`. Spaces
at the end of lines and empty lines at the end don't count.

Limits: the check runs in the session that the model worked in, where it may have put other programs in the place of
those that the check calls. Let a check print what only the right state gives, such as a file or what a script answers
to numbers that the model has not seen. If it prints "ok", a model can do so too.
"""

from __future__ import annotations

from cleaner_rl.tasks.grading.grades import Grade, Outcome
from cleaner_rl.tasks.task import Task


class StateGrader:
    """Grades what the check of a task printed."""

    def check(self, task: Task) -> str | None:
        """Return what is wrong with a task; None if nothing is."""
        if not task.check:
            return 'there is no check; give the task extra["check"], a program that prints what is left'
        return None if _lines(task.truth) else "the truth is empty; give what the check prints if all is right"

    async def grade(self, task: Task, text: str) -> Grade:
        """Grade as right if the check printed the truth."""
        if wrong := self.check(task):
            return Grade(Outcome.FAULT, None, f"{wrong[0].upper()}{wrong[1:]}.", task_fault=True)
        if _lines(text) == _lines(task.truth):
            return Grade(Outcome.RIGHT, text, "The check printed what it should.")
        return Grade(Outcome.WRONG, text, "The check printed something else, or didn't run.")


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]

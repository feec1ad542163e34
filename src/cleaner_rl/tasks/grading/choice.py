"""Multiple choice: the letter in the box, or the last one that is called the answer."""

from __future__ import annotations

from cleaner_rl.tasks.grading.extraction import choice_letter
from cleaner_rl.tasks.grading.grades import Grade, Outcome
from cleaner_rl.tasks.task import Task


class ChoiceGrader:
    """Grades a chosen letter."""

    def __init__(self, letters: str = "ABCD") -> None:
        self._letters = letters

    async def grade(self, task: Task, text: str) -> Grade:
        """Grade as right if the chosen letter is the task's."""
        if len(task.truth) != 1 or task.truth not in self._letters:
            return Grade(Outcome.FAULT, None, f"The reference '{task.truth}' is none of {self._letters}.")
        letter = choice_letter(text, self._letters)
        if letter is None:
            return Grade(Outcome.WRONG, None, f"The final turn chooses none of {self._letters}.")
        if letter == task.truth:
            return Grade(Outcome.RIGHT, letter, "The letters are equal.")
        return Grade(Outcome.WRONG, letter, "The letters differ.")

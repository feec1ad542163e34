"""Finds what can't be graded before anything is generated: one error that names every problem and what to do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches

from cleaner_rl.tasks.grading.cases import check_cases
from cleaner_rl.tasks.grading.choice import ChoiceGrader
from cleaner_rl.tasks.grading.grades import Grader
from cleaner_rl.tasks.grading.math_pool import MISSING, available
from cleaner_rl.tasks.grading.mathematics import check_reference
from cleaner_rl.tasks.grading.state import StateGrader
from cleaner_rl.tasks.task import Task

SHOWN = 5
"""Tasks that are named per problem."""
_OURS: Mapping[str, Callable[[Task], str | None]] = {
    "choice": ChoiceGrader().check,
    "code": check_cases,
    "math": check_reference,
    "state": StateGrader().check,
}


class UngradableError(ValueError):
    """Tasks can't be graded as they are; the message names all problems."""


def check_gradable(tasks: Iterable[Task], graders: Mapping[str, Grader] | Collection[str]) -> None:
    """Check that each task has a grader, and that the grader can use its truth.

    A grader of your own takes part if it has a method `check(task)` that returns what is wrong with a task, or None.

    Args:
        tasks: What is to be run.
        graders: The graders by name; or only their names, before they are made.

    Raises:
        UngradableError: Some can't be graded. The message says which, why, and what to do.

    Examples:
        >>> from cleaner_rl.tasks import Message, Task, check_gradable
        >>> task = Task("sky", (Message("user", "A) green or B) blue?"),), grader="choise", truth="B")
        >>> check_gradable([task], ["math", "choice"])
        Traceback (most recent call last):
        ...
        cleaner_rl.tasks.grading.check.UngradableError: 1 task can't be graded:
        - there is no grader 'choise'; did you mean 'choice'? (task 'sky')
    """
    problems: dict[str, list[str]] = {}
    names = list(graders)  # once: it asks every installed package
    for task in tasks:
        for problem in _problems(task, graders, names):
            problems.setdefault(problem, []).append(task.id)
    if problems:
        count = len({task for ids in problems.values() for task in ids})
        lines = [f"- {problem} ({_named(ids)})" for problem, ids in problems.items()]
        raise UngradableError("\n".join([f"{count} task{'s' * (count > 1)} can't be graded:", *lines]))


def _problems(task: Task, graders: Mapping[str, Grader] | Collection[str], names: Sequence[str]) -> list[str]:
    if task.grader not in names:
        near = get_close_matches(task.grader, names, n=1)
        listed = ", ".join(f"'{name}'" for name in names) or "none"
        hint = (
            f"did you mean '{near[0]}'?" if near else f"available: {listed}; `cleaner plugins` lists what is installed"
        )
        return [f"there is no grader '{task.grader}'; {hint}"]
    found = []
    if task.grader == "math" and not available():
        found.append(MISSING)
    check = _OURS.get(task.grader)
    if isinstance(graders, Mapping):
        try:
            check = getattr(graders[task.grader], "check", check)
        except Exception as error:  # a plug-in's: loading it runs its code
            return [f"the grader '{task.grader}' can't be loaded: {error}"]
    if check is not None and (wrong := check(task)):
        found.append(wrong)
    return found


def _named(ids: list[str]) -> str:
    shown = ", ".join(f"'{each}'" for each in ids[:SHOWN])
    rest = f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else ""
    return f"task{'s' * (len(ids) > 1)} {shown}{rest}"

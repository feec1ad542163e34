"""Which tasks are worth training on, from how often a model solved them.

A task that is always or never solved gives a zero-variance group, and nothing to learn. The default table is the 7B
recipe's, of 8 tries: nothing of 0/8, 80 % of 1/8, 90 % of 2/8, all of 3/8 to 7/8, nothing of 8/8. Whether a task is
among the 80 % is drawn from the seed and its id.

Limits: a rate holds for the model, prompt and sampling that it was measured with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from cleaner_rl.tasks.draws import draw
from cleaner_rl.tasks.task import PassRate, Task

RECIPE_7B = (0.0, 0.8, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0)
"""The share kept of the tasks passed 0, 1, ..., 8 times of 8."""


@dataclass(frozen=True, slots=True)
class Filtered:
    """The tasks that a filter kept, and the counts behind it."""

    kept: tuple[Task, ...]
    seen_by_passed: tuple[int, ...]
    """Tasks passed 0, 1, ... times."""
    kept_by_passed: tuple[int, ...]


def with_pass_rates(tasks: Iterable[Task], rates: Mapping[str, PassRate]) -> list[Task]:
    """Return the tasks with their measured pass rates, by id; those without one stay as they are."""
    return [replace(task, pass_rate=rates.get(task.id, task.pass_rate)) for task in tasks]


def by_difficulty(tasks: Iterable[Task], seed: int, shares: tuple[float, ...] = RECIPE_7B) -> Filtered:
    """Keep tasks by a table of shares; `shares[k]` is for those passed k times of `len(shares) - 1`."""
    if len(shares) < 2 or not all(0 <= share <= 1 for share in shares):
        raise ValueError("shares: one number from 0 to 1 for each count of passes, from none to all")
    tries = len(shares) - 1
    kept: list[Task] = []
    seen_by_passed, kept_by_passed = [0] * len(shares), [0] * len(shares)
    for task in tasks:
        rate = task.pass_rate
        if rate is None or rate.tries != tries:
            had = "no pass rate" if rate is None else f"a rate of {rate.tries} tries"
            raise ValueError(f"task '{task.id}' has {had}; the table is for {tries} tries: measure it with that many")
        seen_by_passed[rate.passed] += 1
        if draw(seed, "difficulty", task.id) < shares[rate.passed]:
            kept_by_passed[rate.passed] += 1
            kept.append(task)
    return Filtered(tuple(kept), tuple(seen_by_passed), tuple(kept_by_passed))

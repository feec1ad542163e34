"""GRPO-RoC on logs: which attempts of each task are kept, where there are several and their outcomes are known.

All logs are gone through once to choose, and once more to write. What is held in between is a few numbers a trajectory,
not the trajectory: about 300 bytes each.

Attempts of a task with fewer than `keep` usable ones, or with one of these without an outcome, are all kept: there is
nothing to choose by.
Groups whose outcomes are all equal are chosen from too; that they teach a policy gradient nothing is no matter here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from math import isnan, nan
from multiprocessing import get_context
from typing import Any, NamedTuple

from cleaner_rl.cli.purify_run import Task
from cleaner_rl.purify.logs.work import NUMBER_BITS, Job, Unit, trajectories_of
from cleaner_rl.resample import Group, Quality, RocPolicy, assess, is_positive, select, verdicts

Place = tuple[str, int, str]
"""Run, step and task."""


class Attempt(NamedTuple):
    """What choosing needs to know."""

    number: int
    reward: float | None
    success: bool | None
    usable: bool
    quality: Quality


def choose(
    units: Sequence[Unit], tasks: Sequence[Task], job: Job, keep: int, seed: int, jobs: int, step: Callable[[int], None]
) -> list[Task]:
    """The tasks, each with the verdicts on its trajectories."""
    groups: dict[Place, list[Attempt]] = {}
    look = partial(attempts_of, job=job)
    with ExitStack() as stack:
        found: Iterable[list[tuple[Place, Attempt]]] = map(look, units)
        if jobs > 1:
            executor = stack.enter_context(ProcessPoolExecutor(jobs, mp_context=get_context("spawn")))
            found = executor.map(look, units)
        for each in found:
            for place, attempt in each:
                groups.setdefault(place, []).append(attempt)
            step(1)
    each_side = min(2, keep // 2)
    policy = RocPolicy(keep=keep, min_positive=each_side, min_negative=each_side)
    chosen: dict[int, dict[int, Mapping[str, Any]]] = {}
    for (_, at, task), attempts in groups.items():
        for number, verdict in _verdicts(task, at, attempts, policy, seed):
            chosen.setdefault(number >> NUMBER_BITS, {})[number] = verdict
    return [replace(task, chosen=chosen.get(task.unit.number, {})) for task in tasks]


def attempts_of(unit: Unit, job: Job) -> list[tuple[Place, Attempt]]:
    """The attempts in a unit."""
    return [
        (
            (each.key.run, each.key.step, each.key.task),
            Attempt(number, each.reward, each.success, each.usable and bool(each.turns), assess(each)),
        )
        for number, each in trajectories_of(unit, job)
    ]


def _verdicts(
    task: str, step: int, attempts: Sequence[Attempt], policy: RocPolicy, seed: int
) -> list[tuple[int, Mapping[str, Any]]]:
    rewards = [_outcome(each) for each in attempts]
    usable = [reward for reward, each in zip(rewards, attempts, strict=True) if each.usable]
    if len(usable) < policy.keep or any(map(isnan, usable)):
        return []
    group = Group(
        task,
        step,
        rewards,
        [each.quality for each in attempts],
        [is_positive(reward, each.success) for reward, each in zip(rewards, attempts, strict=True)],
        list(range(len(attempts))),
        [each.usable for each in attempts],
    )
    found = verdicts(select(group, policy, seed, dynamic_sampling=False), policy)
    return [(each.number, dict(verdict)) for each, verdict in zip(attempts, found, strict=True)]


def _outcome(attempt: Attempt) -> float:
    """What it came to; not a number if nobody says."""
    if attempt.success is not None:
        return float(attempt.success)
    return nan if attempt.reward is None else attempt.reward

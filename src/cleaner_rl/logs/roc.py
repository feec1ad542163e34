"""Chooses by GRPO-RoC which attempts of each task are kept, if there are several and their outcomes are known.

All logs are read once to choose, and once more to write. In between, about 300 bytes per trajectory are kept.

Attempts of a task with fewer than `keep` usable ones, or with one of these without an outcome, are all kept: there is
nothing to choose by.
Zero-variance groups are chosen from too: here they are not for a policy gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from math import isnan, nan
from typing import Any, NamedTuple

from cleaner_rl.logs.jobs import UnitTask, workers
from cleaner_rl.logs.work import NUMBER_BITS, LogSettings, Unit, trajectories_of
from cleaner_rl.resample import Quality, RocConfig, RolloutGroup, assess, is_positive, select, verdicts

Place = tuple[str, int, str]
"""Run, step and task."""


class Attempt(NamedTuple):
    """What is known of an attempt for choosing."""

    number: int
    reward: float | None
    success: bool | None
    usable: bool
    quality: Quality


def choose(
    units: Sequence[Unit],
    tasks: Sequence[UnitTask],
    settings: LogSettings,
    keep: int,
    jobs: int,
    done: Callable[[], None],
) -> list[UnitTask]:
    """Return the tasks, each with GRPO-RoC's verdicts on its trajectories. `done` is called after each unit."""
    groups: dict[Place, list[Attempt]] = {}
    look = partial(attempts_of, settings=settings)
    with ExitStack() as stack:
        found: Iterable[list[tuple[Place, Attempt]]] = map(look, units)
        if jobs > 1:
            found = stack.enter_context(workers(jobs)).map(look, units)
        for each in found:
            for place, attempt in each:
                groups.setdefault(place, []).append(attempt)
            done()
    each_side = min(2, keep // 2)
    config = RocConfig(keep=keep, min_positive=each_side, min_negative=each_side)
    chosen: dict[int, dict[int, Mapping[str, Any]]] = {}
    for (_, at, task), attempts in groups.items():
        for number, verdict in _verdicts(task, at, attempts, config, settings.seed):
            chosen.setdefault(number >> NUMBER_BITS, {})[number] = verdict
    return [replace(task, chosen=chosen.get(task.unit.number, {})) for task in tasks]


def attempts_of(unit: Unit, settings: LogSettings) -> list[tuple[Place, Attempt]]:
    """Return the attempts in a unit."""
    return [
        (
            (each.key.run, each.key.step, each.key.task),
            Attempt(number, each.reward, each.success, each.usable and bool(each.turns), assess(each)),
        )
        for number, each in trajectories_of(unit, settings)
    ]


def _verdicts(
    task: str, step: int, attempts: Sequence[Attempt], config: RocConfig, seed: int
) -> list[tuple[int, Mapping[str, Any]]]:
    rewards = [_outcome(each) for each in attempts]
    usable = [reward for reward, each in zip(rewards, attempts, strict=True) if each.usable]
    if len(usable) < config.keep or any(map(isnan, usable)):
        return []
    group = RolloutGroup(
        task,
        step,
        rewards,
        [each.quality for each in attempts],
        [is_positive(reward, each.success) for reward, each in zip(rewards, attempts, strict=True)],
        list(range(len(attempts))),
        [each.usable for each in attempts],
    )
    found = verdicts(select(group, config, seed, dynamic_sampling=False), config)
    return [(each.number, dict(verdict)) for each, verdict in zip(attempts, found, strict=True)]


def _outcome(attempt: Attempt) -> float:
    """Return the outcome of an attempt; NaN if it is unknown."""
    if attempt.success is not None:
        return float(attempt.success)
    return nan if attempt.reward is None else attempt.reward

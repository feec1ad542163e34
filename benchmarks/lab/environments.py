"""The toy environments that methods are compared in, with the models that all methods begin with.

A cold start is a toy model (`benchmarks.toy`): its seed draws its demonstrations, its weights and its vocabulary. Runs
with the same seed begin with the same cold start, whatever their method.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.toy.folder import AGENT, cache_folder, made, place, tasks
from benchmarks.toy.model import SMALL, SMOLLM2, Lessons
from benchmarks.toy.questions import TEST
from benchmarks.toy.regimes import REGIMES, Regime
from cleaner_rl.tasks import Task, write_verl

DRIFT, UNHINTED, SLIPS, STARVED = "drift", "drift-unhinted", "slips", "starved"
REAL = "smollm2"
"""The environment `drift` with a real language model."""
REGIME_NAMES = (DRIFT, SLIPS, STARVED, UNHINTED, REAL)
COLD_STARTS = 3
"""Number of different models that runs begin with; seeds share them in turn."""
HELD_OUT = 192
"""Number of tasks of an evaluation."""
FAILED_FIRST = 256
"""Number of tasks of the recovery set, which no evaluation uses."""


@dataclass(frozen=True, slots=True)
class ToyEnvironment:
    """An environment with one of its cold starts."""

    regime: Regime
    lessons: Lessons
    evaluated: int = HELD_OUT
    failing: int = FAILED_FIRST
    window: int = 1_024
    """The most tokens of a rollout of the recovery set."""

    @property
    def folder(self) -> Path:
        """The folder that holds it once it is made."""
        return place(self.regime, self.lessons).absolute()

    @property
    def held_out(self) -> Path:
        """The file of the evaluation's tasks, in verl's format."""
        return self.folder / f"held-out-{self.evaluated}.parquet"

    def make(self) -> None:
        """Make what doesn't exist yet; takes minutes and needs torch."""
        made(self.regime, self.lessons)
        if not self.held_out.exists():
            part = self.held_out.with_suffix(f".part{os.getpid()}")
            write_verl(part, self.held_out_tasks(), self.regime.prompt, AGENT)
            part.rename(self.held_out)

    def held_out_tasks(self) -> list[Task]:
        """Return the tasks of every evaluation."""
        return tasks(self.regime, TEST, self.evaluated)

    def failed_first(self) -> list[Task]:
        """Return the tasks of the recovery set."""
        return tasks(self.regime, TEST, HELD_OUT + self.failing)[HELD_OUT:]


def toy_environment(regime: str, seed: int) -> ToyEnvironment:
    """Return the environment of a seed."""
    if regime == REAL:
        lessons = replace(SMOLLM2, seed=seed % COLD_STARTS)
        return ToyEnvironment(REGIMES[DRIFT], lessons, evaluated=64, failing=64, window=lessons.window)
    return ToyEnvironment(REGIMES[regime], replace(SMALL, seed=seed % COLD_STARTS))


def kind(regime: Regime) -> Callable[[str], str] | None:
    """Return what names a task by how many of its functions changed since the demonstrations; None if none changed."""
    if not regime.drifted:
        return None
    moved = {stem for stem, suffix in regime.known.items() if regime.current[stem] != suffix}

    def named(task: str) -> str:
        return f"{sum(part in moved for part in re.split('[/-]', task))}_changed"

    return named


def lab_folder() -> Path:
    """Return the folder of all runs: the environment variable `CLEANER_LAB`, else `lab` beside the toy environments."""
    return Path(os.environ.get("CLEANER_LAB") or cache_folder().parent / "lab").absolute()

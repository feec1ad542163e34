"""Where arms are compared: regimes, the cold starts that all arms share, and the tasks that nobody trains on.

A cold start is a model of `benchmarks.taught`: its seed draws its demonstrations, its weights and its vocabulary. Runs
of the same number begin with the same cold start, whatever their arm.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.taught.folder import AGENT, cache_folder, made, place, tasks
from benchmarks.taught.pupil import SMALL, SMOLLM2, Lessons
from benchmarks.taught.questions import TEST
from benchmarks.taught.regimes import REGIMES, Regime
from cleaner_rl.tasks import Task, write_verl

DRIFT, UNHINTED, SLIPS, STARVED = "drift", "drift-unhinted", "slips", "starved"
REAL = "smollm2"
"""Drift once more, for a real language model."""
PLACES = (DRIFT, SLIPS, STARVED, UNHINTED, REAL)
COLD_STARTS = 3
"""How many different models runs begin with, in turn."""
HELD_OUT = 192
"""Tasks of an evaluation."""
FAILED_FIRST = 256
"""Tasks of the recovery set; others than those of the evaluation."""


@dataclass(frozen=True, slots=True)
class World:
    """A regime with one of its cold starts."""

    regime: Regime
    lessons: Lessons
    evaluated: int = HELD_OUT
    failing: int = FAILED_FIRST
    window: int = 1_024
    """Tokens of a rollout of the recovery set, at most."""

    @property
    def folder(self) -> Path:
        """Where it is, once it was made."""
        return place(self.regime, self.lessons).absolute()

    @property
    def held_out(self) -> Path:
        """The tasks of every evaluation, as verl's rows."""
        return self.folder / f"held-out-{self.evaluated}.parquet"

    def make(self) -> None:
        """Make what isn't there: minutes, and torch."""
        made(self.regime, self.lessons)
        if not self.held_out.exists():
            part = self.held_out.with_suffix(f".part{os.getpid()}")
            write_verl(part, self.held_out_tasks(), self.regime.prompt, AGENT)
            part.rename(self.held_out)

    def held_out_tasks(self) -> list[Task]:
        """The tasks of every evaluation."""
        return tasks(self.regime, TEST, self.evaluated)

    def failed_first(self) -> list[Task]:
        """The tasks of the recovery set."""
        return tasks(self.regime, TEST, HELD_OUT + self.failing)[HELD_OUT:]


def world(regime: str, seed: int) -> World:
    """The world of a run's number."""
    if regime == REAL:
        lessons = replace(SMOLLM2, seed=seed % COLD_STARTS)
        return World(REGIMES[DRIFT], lessons, evaluated=64, failing=64, window=lessons.window)
    return World(REGIMES[regime], replace(SMALL, seed=seed % COLD_STARTS))


def kind(regime: Regime) -> Callable[[str], str] | None:
    """Names a task by how many of its functions have another name than the model was taught; None if none has."""
    if not regime.drifted:
        return None
    moved = {stem for stem, suffix in regime.known.items() if regime.current[stem] != suffix}

    def named(task: str) -> str:
        return f"{sum(part in moved for part in re.split('[/-]', task))}_changed"

    return named


def lab_folder() -> Path:
    """Where runs live: the environment's `CLEANER_LAB`, else `lab` beside the taught worlds."""
    return Path(os.environ.get("CLEANER_LAB") or cache_folder().parent / "lab").absolute()

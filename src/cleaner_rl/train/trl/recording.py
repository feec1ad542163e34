"""Writes a run's trajectories and metrics into a folder that `cleaner view` opens, like the folder of a run on verl."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import isfinite
from pathlib import Path

from cleaner_rl.rollout import RescueTry
from cleaner_rl.train.launch.rewind import METRICS
from cleaner_rl.train.rows import Graded
from cleaner_rl.train.verl.step_record import figures_of, group_figures, rescue_figures
from cleaner_rl.trajectory import TokenSpan
from cleaner_rl.trajectory.store import ParquetWriter


def step_figures(
    rollouts: Sequence[Graded], rescues: Sequence[RescueTry[TokenSpan]], faults: int, training: bool
) -> dict[str, float]:
    """Return the figures of a batch of rollouts, by the names of docs/reference/metrics.md."""
    drawn = [rollout for rollout in rollouts if rollout.info.rescued is None]
    usable = [rollout for rollout in drawn if rollout.usable and rollout.reward is not None]
    figures = figures_of(usable) | {"faults": float(faults), "fault_share": faults / max(1, len(drawn))}
    if training:
        figures |= group_figures(usable) | rescue_figures(rescues)
    return {name: value for name, value in figures.items() if isfinite(value)}


class RunFolder:
    """Appends to the folder of a run; without a folder it writes nothing."""

    def __init__(self, folder: str | Path | None, run: str) -> None:
        self._folder, self._run = None if folder is None else Path(folder), run

    def write(self, rollouts: Sequence[Graded]) -> None:
        """Add rollouts to the store."""
        if self._folder is not None:
            with ParquetWriter(self._folder / "trajectories") as writer:
                for rollout in rollouts:
                    writer.write(rollout)

    def note(self, step: int, figures: dict[str, float]) -> None:
        """Add a step's figures to the metrics."""
        if self._folder is not None:
            line = json.dumps({"run": self._run, "step": step, "metrics": figures})
            with (self._folder / METRICS).open("a", encoding="utf-8") as file:
                file.write(line + "\n")

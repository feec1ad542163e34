"""Writes a run's trajectories and metrics into its folder, which `cleaner view` opens whichever trainer ran."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from cleaner_rl.train.rows import Graded
from cleaner_rl.trajectory.store import ParquetWriter

ABANDONED = ".abandoned"
"""The folder, inside a run's, of what a resumed run does again. Neither the store nor the viewer looks there."""
METRICS = "metrics.jsonl"


class RunFolder:
    """Appends to the folder of a run; without a folder it writes nothing."""

    def __init__(self, folder: str | Path | None, run: str) -> None:
        self._folder, self._run = None if folder is None else Path(folder), run

    def write(self, rollouts: Sequence[Graded], where: str = "") -> None:
        """Add rollouts to the store, or to the one in the folder `where` below it."""
        if self._folder is not None:
            with ParquetWriter(self._folder / where / "trajectories") as writer:
                for rollout in rollouts:
                    writer.write(rollout)

    def note(self, step: int, figures: dict[str, float]) -> None:
        """Add a step's figures to the metrics."""
        if self._folder is not None:
            line = json.dumps({"run": self._run, "step": step, "metrics": figures})
            with (self._folder / METRICS).open("a", encoding="utf-8") as file:
                file.write(line + "\n")

"""Finished rollouts, kept from one evaluation to the next: a kill costs seconds of work, and nothing is done twice.

A folder of the cache belongs to one model under one group of settings; its name is their fingerprint. In it lies a
store like any other. Rollouts are written in small files, each whole or absent, a few seconds after they finished.

A rollout counts as done if it was judged, and if its task still asks the same. One that ended in a fault is kept for
people to look at, and tried again by the next run.

Limits: a model is known by the name it is given (for a local folder also by its files' sizes and times). Weights that
change behind an address under the same name can't be seen: name the checkpoint, or clear the folder.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Self

from cleaner_rl.evaluate.measures import fault_of
from cleaner_rl.tasks import Task
from cleaner_rl.trajectory import AnyTrajectory, Key
from cleaner_rl.trajectory.store import ParquetWriter, read

FLUSH_SECONDS = 5.0
FLUSH_ROLLOUTS = 64
ASKED = "asked"
"""The entry of `Trajectory.extra` with the fingerprint of the task."""


def fingerprint(values: Mapping[str, object]) -> str:
    """A short name for settings."""
    text = json.dumps(values, sort_keys=True, ensure_ascii=False, default=str)
    return blake2b(text.encode(errors="surrogatepass"), digest_size=8).hexdigest()


def task_fingerprint(task: Task) -> str:
    """A short name for all that a task asks and how it is judged."""
    return fingerprint({"prompt": [(each.role, each.content) for each in task.prompt], "truth": task.truth})


def model_identity(model: str) -> dict[str, object]:
    """What a model is known by."""
    folder = Path(model)
    weights = sorted(folder.glob("*.safetensors")) if folder.is_dir() else []
    files = {file.name: [(stat := file.stat()).st_size, stat.st_mtime_ns] for file in weights}
    return {"model": model, "files": files} if files else {"model": model}


class Cache:
    """The finished rollouts of one model under some settings; a context manager, which writes what is left."""

    def __init__(self, folder: Path, settings: Mapping[str, object]) -> None:
        self.folder = folder / fingerprint(settings)
        self._settings = settings
        self._pending: list[AnyTrajectory] = []
        self._flushed = time.monotonic()

    def judged(self, tasks: Mapping[str, Task]) -> Iterator[AnyTrajectory]:
        """What was judged before of these tasks, each rollout once."""
        if not any(self.folder.rglob("*.parquet")):
            return
        asked = {name: task_fingerprint(task) for name, task in tasks.items()}
        seen: set[Key] = set()
        for trajectory in read(self.folder):
            key = trajectory.key
            same = key.task in asked and trajectory.extra.get(ASKED) == asked[key.task]
            if same and key not in seen and not fault_of(trajectory):
                seen.add(key)
                yield trajectory

    def add(self, trajectory: AnyTrajectory, task: Task) -> None:
        """Keep a finished rollout."""
        extra = {**trajectory.extra, ASKED: task_fingerprint(task)}
        self._pending.append(replace(trajectory, extra=extra))
        if len(self._pending) >= FLUSH_ROLLOUTS or time.monotonic() - self._flushed >= FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write what is pending."""
        self._flushed = time.monotonic()
        if not self._pending:
            return
        about = self.folder / "settings.json"
        if not about.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            about.write_text(json.dumps(self._settings, indent=1, ensure_ascii=False, default=str) + "\n")
        with ParquetWriter(self.folder) as writer:
            for trajectory in self._pending:
                writer.write(trajectory)
        self._pending = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.flush()  # also when the run was interrupted: what is finished is finished

"""A run that was broken off goes on from its last checkpoint. What it did after that is done again, by other weights.

It is set aside before the run goes on: reports, curves and pass rates must not mix the two. It stays below `.abandoned`
in the run's folder, which neither the store nor the viewer looks into unless told to.

Limits: a step is that at which its tasks were drawn. In asynchronous modes some tasks of steps before the checkpoint
are drawn again too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

ABANDONED = ".abandoned"
METRICS = "metrics.jsonl"


def checkpointed(folder: Path) -> int:
    """The step of the checkpoint that a run would go on from; 0 if there is none."""
    latest = folder / "checkpoints" / "latest_checkpointed_iteration.txt"
    return int(latest.read_text()) if latest.exists() else 0


def set_aside(folder: Path, *, evaluates: bool) -> None:
    """Take what a run will do again out of its folder; `evaluates`: it begins with an evaluation of its checkpoint."""
    last = checkpointed(folder)
    for part in sorted((folder / "trajectories").glob("run=*/step=*")):
        step = int(part.name.removeprefix("step="))
        again = evaluates and part.parent.name.endswith("-evaluation")
        if step > last or (again and step == last):
            _move(part, folder / ABANDONED / part.relative_to(folder))
    lines = list(_lines(folder / METRICS))
    done_again = [line for step, line in lines if step > last]
    if done_again:
        (folder / ABANDONED).mkdir(exist_ok=True)
        with (folder / ABANDONED / METRICS).open("a", encoding="utf-8") as file:
            file.writelines(done_again)
        whole = folder / f".{METRICS}"
        whole.write_text("".join(line for step, line in lines if step <= last), encoding="utf-8")
        whole.rename(folder / METRICS)


def _move(part: Path, to: Path) -> None:
    """Into a folder that may hold some of an earlier time: no two files of a store have one name."""
    to.mkdir(parents=True, exist_ok=True)
    for file in part.iterdir():
        os.rename(file, to / file.name)
    part.rmdir()


def _lines(file: Path) -> Iterator[tuple[float, str]]:
    """Each line with its step; one that was broken off belongs to none that is kept."""
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        try:
            step = json.loads(line)["step"]
        except ValueError:
            step = float("inf")
        yield step, f"{line}\n"

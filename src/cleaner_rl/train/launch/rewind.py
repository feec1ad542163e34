"""Sets aside what a resumed run does again: everything after its last checkpoint, which other weights repeat.

Reports, curves and pass rates must not mix the two. What is set aside stays below `.abandoned` in the run's folder,
where neither the store nor the viewer looks by default.

Limits: a step is the one at which its tasks were sampled. In asynchronous modes some tasks of steps before the
checkpoint are sampled again too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from cleaner_rl.train.record import ABANDONED, METRICS


def checkpointed(folder: Path) -> int:
    """Return the step of the checkpoint that a run resumes from; 0 if there is none."""
    latest = folder / "checkpoints" / "latest_checkpointed_iteration.txt"
    return int(latest.read_text()) if latest.exists() else 0


def next_start(folder: Path) -> str:
    """Say from where the same command continues a run that has ended early."""
    last = checkpointed(folder)
    if last:
        return f"The same command resumes after step {last}, the last checkpoint."
    return "No checkpoint was saved yet, so the same command begins again with step 1."


def set_aside(folder: Path, *, evaluates: bool) -> None:
    """Move what a run will do again out of its way; `evaluates`: it begins with an evaluation of its checkpoint."""
    last = checkpointed(folder)
    for part in sorted((folder / "trajectories").glob("run=*/**/step=*")):
        step = int(part.name.removeprefix("step="))
        again = evaluates and part.parent.name == "phase=evaluation"
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
    """Move files into a folder that may hold earlier ones; file names of a store are unique."""
    to.mkdir(parents=True, exist_ok=True)
    for file in part.iterdir():
        os.rename(file, to / file.name)
    part.rmdir()


def _lines(file: Path) -> Iterator[tuple[float, str]]:
    """Yield each line with its step; an incomplete line has an infinite step, so it isn't kept."""
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        try:
            step = json.loads(line)["step"]
        except ValueError:
            step = float("inf")
        yield step, f"{line}\n"

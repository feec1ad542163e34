"""Any store to its trajectories."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cleaner_rl.trajectory.store.files import find
from cleaner_rl.trajectory.store.jsonl import read_jsonl
from cleaner_rl.trajectory.store.parquet import read_parquet
from cleaner_rl.trajectory.trajectory import AnyTrajectory

PARQUET_MAGIC = b"PAR1"


def read(path: str | Path) -> Iterator[AnyTrajectory]:
    """Every trajectory of a store: a Parquet folder or file, or a JSONL file, whichever the path holds.

    In the order of run and step, and in a step as they were written.
    """
    for file in find(Path(path)):
        with file.open("rb") as opened:
            is_parquet = opened.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC
        yield from read_parquet(file) if is_parquet else read_jsonl(file)

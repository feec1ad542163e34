"""Any store to its trajectories."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cleaner_rl.trajectory.store.errors import StoreError
from cleaner_rl.trajectory.store.files import find
from cleaner_rl.trajectory.store.jsonl import read_jsonl, read_jsonl_row
from cleaner_rl.trajectory.store.parquet import read_parquet, read_parquet_row
from cleaner_rl.trajectory.trajectory import AnyTrajectory

PARQUET_MAGIC = b"PAR1"


def read(path: str | Path) -> Iterator[AnyTrajectory]:
    """Every trajectory of a store: a Parquet folder or file, or a JSONL file, whichever the path holds.

    In the order of run and step, and in a step as they were written.
    """
    for file in find(Path(path)):
        yield from read_parquet(file) if _is_parquet(file) else read_jsonl(file)


def read_at(file: str | Path, row: int) -> AnyTrajectory:
    """One trajectory of one file, by its place there: files never change, so the place is a lasting address.

    Of a Parquet file only the group of rows around it is decoded.
    """
    path = Path(file)
    found = read_parquet_row(path, row) if _is_parquet(path) else read_jsonl_row(path, row)
    if found is None:
        raise StoreError(f"{path} has no row {row}; count from 0")
    return found


def _is_parquet(file: Path) -> bool:
    with file.open("rb") as opened:
        return opened.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC

"""Any store to its trajectories."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cleaner_rl.trajectory.store.errors import StoreError
from cleaner_rl.trajectory.store.files import find
from cleaner_rl.trajectory.store.jsonl import read_jsonl, read_jsonl_row
from cleaner_rl.trajectory.store.parquet import read_parquet, read_parquet_row
from cleaner_rl.trajectory.trajectory import AnyTrajectory, Phase

PARQUET_MAGIC = b"PAR1"


def read(path: str | Path, phase: Phase | None = None) -> Iterator[AnyTrajectory]:
    """Yield every trajectory of a store: a Parquet folder or file, or a JSONL file.

    They come in the order of run, phase and step, and within a step as they were written. With `phase` only the
    trajectories of that phase are read.

    Examples:
        >>> import tempfile
        >>> from cleaner_rl.trajectory import Key, TextSpan, Trajectory
        >>> from cleaner_rl.trajectory.store import ParquetWriter, read
        >>> folder = tempfile.mkdtemp()
        >>> with ParquetWriter(folder) as writer:
        ...     writer.write(Trajectory(TextSpan("1 + 1?"), key=Key("run", 0, "sum", 0), reward=1.0))
        >>> [(trajectory.key.task, trajectory.reward) for trajectory in read(folder)]
        [('sum', 1.0)]
    """
    for file in find(Path(path)):
        if phase is not None and _phase_of(file) not in (None, phase):
            continue
        found = read_parquet(file) if _is_parquet(file) else read_jsonl(file)
        yield from found if phase is None else (each for each in found if each.key.phase is phase)


def read_at(file: str | Path, row: int) -> AnyTrajectory:
    """Return one trajectory of one file, by its row: rows never move, so file and row are a lasting address.

    Of a Parquet file only the group of rows around it is decoded.
    """
    path = Path(file)
    found = read_parquet_row(path, row) if _is_parquet(path) else read_jsonl_row(path, row)
    if found is None:
        raise StoreError(f"{path} has no row {row}; count from 0")
    return found


def _phase_of(file: Path) -> Phase | None:
    """The phase that the folders around a file tell; None if they don't."""
    for folder in file.parts[-2::-1]:
        name, _, value = folder.partition("=")
        if name == "phase" and value in set(Phase):
            return Phase(value)
    return None


def _is_parquet(file: Path) -> bool:
    with file.open("rb") as opened:
        return opened.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC

"""Parquet: one row a trajectory, in `run=…/step=…/part-….parquet`.

Memory stays constant: rows are written in groups, and only a few partitions are open at a time. A crash costs at most the
files that are open then, each of a bounded number of rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

import pyarrow as pa
import pyarrow.parquet as pq

from cleaner_rl.trajectory.store.columns import table_of
from cleaner_rl.trajectory.store.errors import StoreError
from cleaner_rl.trajectory.store.files import publish, unfinished
from cleaner_rl.trajectory.store.rows import trajectories_of
from cleaner_rl.trajectory.store.schema import SCHEMA, VERSION_KEY, check_version
from cleaner_rl.trajectory.trajectory import AnyTrajectory

ROWS_IN_GROUP = 256
ROWS_IN_FILE = 16 * ROWS_IN_GROUP
OPEN_PARTITIONS = 8
COMPRESSION = {"compression": "zstd", "compression_level": 1}
PART = re.compile(r"part-(\d+)-")


class ParquetWriter:
    """Adds trajectories to a store, as new files; a context manager.

    `with ParquetWriter("store") as writer: writer.write(trajectory)`. If the block raises, the files that are open then
    are thrown away, as by a crash.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._parts: dict[tuple[str, int], _Part] = {}

    def write(self, trajectory: AnyTrajectory) -> None:
        """Add one trajectory to the partition of its run and step."""
        partition = trajectory.key.run, trajectory.key.step
        part = self._parts.pop(partition, None)
        if part is None:
            while len(self._parts) >= OPEN_PARTITIONS:
                self._parts.pop(next(iter(self._parts))).finish()
            part = _Part(self._path / f"run={_quoted(partition[0])}" / f"step={partition[1]}")
        part.write(trajectory)
        if part.rows >= ROWS_IN_FILE:
            part.finish()
        else:
            self._parts[partition] = part  # the last one used stands last

    def __enter__(self) -> ParquetWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for part in self._parts.values():
            if kind is None:
                part.finish()
            else:
                part.discard()
        self._parts.clear()


class _Part:
    """One unfinished file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._temporary = unfinished(folder)
        self._file = pq.ParquetWriter(self._temporary, SCHEMA, **COMPRESSION)
        self._group: list[AnyTrajectory] = []
        self.rows = 0

    def write(self, trajectory: AnyTrajectory) -> None:
        self._group.append(trajectory)
        self.rows += 1
        if len(self._group) == ROWS_IN_GROUP:
            self._flush()

    def finish(self) -> None:
        if self._group:
            self._flush()
        self._file.close()
        numbers = (PART.match(each.name) for each in self._folder.iterdir())
        number = 1 + max((int(match[1]) for match in numbers if match), default=-1)
        # The number keeps the order; the rest of the name keeps two writers apart.
        publish(self._temporary, self._folder / f"part-{number:05}-{self._temporary.name[1:9]}.parquet")

    def discard(self) -> None:
        self._file.close()
        self._temporary.unlink()

    def _flush(self) -> None:
        group, self._group = self._group, []
        self._file.write_table(table_of(group))


def read_parquet(path: Path) -> Iterator[AnyTrajectory]:
    """The rows of one file."""
    try:
        with pq.ParquetFile(path, memory_map=True) as file:
            for batch in _ahead(_batches(file, str(path))):
                yield from trajectories_of(batch)
    except (pa.ArrowException, KeyError, OSError) as error:
        raise StoreError(f"{path} can't be read as a store: {error}") from error


def _batches(file: pq.ParquetFile, where: str) -> Iterator[pa.RecordBatch]:
    version = (file.schema_arrow.metadata or {}).get(VERSION_KEY)
    if version is not None:
        check_version(int(version), where)
    for batch in file.iter_batches(ROWS_IN_GROUP):
        yield batch


def _ahead(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same, with the next batch decoded, outside of Python's lock, while this one is turned into values."""
    with ThreadPoolExecutor(1) as executor:
        following = executor.submit(next, batches, None)
        while (batch := following.result()) is not None:
            following = executor.submit(next, batches, None)
            yield batch


def _quoted(run: str) -> str:
    """A run's name as a part of a path, percent-encoded as Hive and DuckDB expect it."""
    return "".join(
        character if character.isascii() and (character.isalnum() or character in "-_.") else _percent(character)
        for character in run
    )


def _percent(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode())

"""Parquet: one row per trajectory, in `run=…/phase=…/step=…/part-….parquet`.

Memory stays constant: rows are written in groups, and only a few partitions are open at a time. A crash costs at most
the files that are open then, each of a bounded number of rows.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from cleaner_rl.trajectory.store.errors import UNREADABLE, StoreError
from cleaner_rl.trajectory.store.files import publish, unfinished
from cleaner_rl.trajectory.store.record import (
    SCHEMA,
    VERSION_KEY,
    check_version,
    table_of,
    trajectories_of,
)
from cleaner_rl.trajectory.trajectory import AnyTrajectory, Phase

ROWS_IN_GROUP = 256
ROWS_IN_FILE = 16 * ROWS_IN_GROUP
OPEN_PARTITIONS = 8
# Dictionaries don't pay: hardly a text or log-prob comes twice, and zstd finds what does as well as they do. The least
# and the greatest value serve to skip rows, which nobody does by a text or a token.
OPTIONS = {
    "compression": "zstd",
    "compression_level": 1,
    "use_dictionary": False,
    "write_statistics": ["run", "phase", "step", "task", "rollout", "reward", "success", "stop_reason"],
}
BATCH_BYTES, FEW_ROWS = 64 << 20, 16
"""What a group of rows may decode to if all of it is decoded at once, and how many rows are otherwise."""
EXPANDED_BYTES, EXPANSION = 256 << 20, 250
"""What the rows of any file may decode to, and how many times its size those of a large one: a store has fifty at most,
and a file that was made to fill the memory has thousands."""
Partition: TypeAlias = tuple[str, Phase, int]
PART = re.compile(r"part-(\d+)-")


class ParquetWriter:
    """Adds trajectories to a store, as new files; a context manager.

    `with ParquetWriter("store") as writer: writer.write(trajectory)`. If the block raises, the files that are open then
    are thrown away, as by a crash.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._parts: dict[Partition, _Part] = {}
        self._executor = ThreadPoolExecutor(1)

    def write(self, trajectory: AnyTrajectory) -> None:
        """Add one trajectory to the partition of its run, phase and step."""
        key = trajectory.key
        partition = key.run, key.phase, key.step
        part = self._parts.pop(partition, None) or self._open(partition)
        self._parts[partition] = part  # the one used last stands last
        part.write(trajectory)
        if part.rows == ROWS_IN_FILE:
            self._parts.pop(partition).finish()

    def _open(self, partition: Partition) -> _Part:
        if len(self._parts) == OPEN_PARTITIONS:
            self._parts.pop(next(iter(self._parts))).finish()
        run, phase, step = partition
        return _Part(self._path / f"run={_quoted(run)}" / f"phase={phase}" / f"step={step}", self._executor)

    def __enter__(self) -> ParquetWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._executor, ExitStack() as every_one:
            while self._parts:
                part = self._parts.popitem()[1]
                every_one.callback(part.finish if kind is None else part.discard)


class _Part:
    """One unfinished file. Its columns are compressed in the background, while the next ones are made."""

    def __init__(self, folder: Path, executor: Executor) -> None:
        self._folder = folder
        self._temporary = unfinished(folder)
        self._file = pq.ParquetWriter(self._temporary, SCHEMA, **OPTIONS)
        self._executor = executor
        self._writing: Future[None] | None = None
        self._group: list[AnyTrajectory] = []
        self.rows = 0

    def write(self, trajectory: AnyTrajectory) -> None:
        self._group.append(trajectory)
        self.rows += 1
        if len(self._group) == ROWS_IN_GROUP:
            self._flush()

    def finish(self) -> None:
        try:
            self._flush()
            self._wait()
            self._file.close()
            numbers = (PART.match(each.name) for each in self._folder.iterdir())
            number = 1 + max((int(match[1]) for match in numbers if match), default=-1)
            # The number keeps the order; the rest of the name keeps two writers apart.
            publish(self._temporary, self._folder / f"part-{number:05}-{self._temporary.name[1:9]}.parquet")
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        with suppress(Exception):  # whatever broke is on its way up already
            self._wait()
            self._file.close()
        self._temporary.unlink(missing_ok=True)

    def _flush(self) -> None:
        group, self._group = self._group, []
        if group:
            table = table_of(group)
            self._wait()
            self._writing = self._executor.submit(self._file.write_table, table)

    def _wait(self) -> None:
        if self._writing is not None:
            self._writing.result()


def rewrite(file: Path, trajectories: Sequence[AnyTrajectory]) -> None:
    """Put these rows in the place of a file's own, for grades that changed; without rows the file is removed.

    It happens in one step: a reader sees the old file or the new one, and so does whoever comes after a crash.
    """
    if not trajectories:
        file.unlink()
        return
    temporary = unfinished(file.parent)
    try:
        with pq.ParquetWriter(temporary, SCHEMA, **OPTIONS) as writer:
            for first in range(0, len(trajectories), ROWS_IN_GROUP):
                writer.write_table(table_of(trajectories[first : first + ROWS_IN_GROUP]))
        publish(temporary, file)
    finally:
        temporary.unlink(missing_ok=True)


def read_parquet(path: Path) -> Iterator[AnyTrajectory]:
    """The rows of one file."""
    with _opened(path) as file, closing(_ahead(_batches(file, path))) as batches:
        for batch in batches:
            yield from trajectories_of(batch)


def read_parquet_row(path: Path, row: int) -> AnyTrajectory | None:
    """One row of one file, for which only its group of rows is decoded; None if there is no such row."""
    with _opened(path) as file:
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            if row >= rows:
                row -= rows
                continue
            for batch in _batches(file, path, [group]):
                if row < len(batch):
                    return next(iter(trajectories_of(batch.take(pa.array([row])))))
                row -= len(batch)
    return None


@contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    """A file, and what goes wrong with it in words."""
    try:
        with pq.ParquetFile(path, memory_map=True) as file:
            yield file
    except (pa.ArrowException, OSError, *UNREADABLE) as error:
        raise StoreError(
            f"{path} can't be read: {error}; restore it from a copy, or delete it to read the rest"
        ) from error


def _batches(file: pq.ParquetFile, path: Path, groups: list[int] | None = None) -> Iterator[pa.RecordBatch]:
    schema = file.schema_arrow
    if schema.metadata and VERSION_KEY in schema.metadata:
        versions = {int(schema.metadata[VERSION_KEY])}
    else:
        versions = set(file.read(["schema_version"]).to_pydict().get("schema_version", [None]))
    for version in versions:
        check_version(version, path)
    for batch in bounded_batches(file, path, groups=groups):
        # Tools that copy rows may widen a type or move a column.
        yield batch if schema.equals(SCHEMA) else batch.select(SCHEMA.names).cast(SCHEMA)


def bounded_batches(
    file: pq.ParquetFile, path: Path, columns: list[str] | None = None, groups: list[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, some at a time. Raises `StoreError` once they are more than such a file can hold."""
    left = max(EXPANDED_BYTES, EXPANSION * path.stat().st_size)
    for batch in file.iter_batches(_rows_at_once(file), row_groups=groups, columns=columns):
        left -= batch.nbytes
        if left < 0:
            raise StoreError(
                f"{path} can't be read: its rows have more than {EXPANSION} times the bytes that the file has; delete "
                "it to read the rest"
            )
        yield batch


def _rows_at_once(file: pq.ParquetFile) -> int:
    parts = [file.metadata.row_group(group) for group in range(file.num_row_groups)]
    # A dictionary has a value once, however many rows do: then nobody can tell what they decode to.
    repeats = any(part.column(index).has_dictionary_page for part in parts for index in range(part.num_columns))
    large = any(part.total_byte_size * ROWS_IN_GROUP > BATCH_BYTES * part.num_rows for part in parts)
    return FEW_ROWS if repeats or large else ROWS_IN_GROUP


def _ahead(batches: Iterator[pa.RecordBatch]) -> Generator[pa.RecordBatch, None, None]:
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
    return "".join(f"%{byte:02X}" for byte in character.encode(errors="surrogatepass"))

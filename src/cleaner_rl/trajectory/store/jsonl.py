"""JSONL: one object per line, with the content of a Parquet row.

The fields have the names of the columns in `record`. Only edits differ: their `original` holds turns as they are, to
any depth. A number that JSON can't spell is the string "NaN", "Infinity" or "-Infinity"; every other float comes back
bit for bit, and every NaN as the one that numpy calls `nan`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import TracebackType

from cleaner_rl.trajectory.store.errors import UNREADABLE, StoreError
from cleaner_rl.trajectory.store.files import publish, unfinished
from cleaner_rl.trajectory.store.record import TRAJECTORY, UNSTORABLE, check_version, unstorable
from cleaner_rl.trajectory.trajectory import AnyTrajectory


class JsonlWriter:
    """Writes one new file; a context manager, like `ParquetWriter`. If the block raises, there is no file."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        if self._path.exists():
            raise StoreError(f"{path} exists, and a file of a store is never written to again: choose a new name")
        self._temporary = unfinished(self._path.parent)
        self._file = self._temporary.open("w", encoding="utf-8")

    def write(self, trajectory: AnyTrajectory) -> None:
        """Add one trajectory."""
        try:
            line = json.dumps(TRAJECTORY.to_json(trajectory), ensure_ascii=False, allow_nan=False)
            self._file.write(line + "\n")
        except UNSTORABLE as error:
            raise unstorable(trajectory, error) from error

    def __enter__(self) -> JsonlWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()
        if kind is None:
            publish(self._temporary, self._path)
        else:
            self._temporary.unlink()


def read_jsonl(path: Path) -> Iterator[AnyTrajectory]:
    """The lines of one file."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            yield _read_line(line, number, path)


def read_jsonl_row(path: Path, row: int) -> AnyTrajectory | None:
    """One line of one file, counted from 0; None if there is no such line."""
    with path.open("rb") as file:
        line = next(islice(file, row, None), None)
    return None if line is None else _read_line(line, row + 1, path)


def _read_line(line: bytes, number: int, path: Path) -> AnyTrajectory:
    try:
        record = json.loads(line)
        check_version(record.get("schema_version") if isinstance(record, dict) else None, path)
        read: AnyTrajectory = TRAJECTORY.from_json(record)
        return read
    except UNREADABLE as error:
        raise StoreError(
            f"line {number} of {path} can't be read: {error!r}; "
            "restore the file from a copy, or delete it to read the rest"
        ) from error

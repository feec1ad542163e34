"""Rows of somebody else's data set, and errors that say which column is missing.

Limits: files are JSON lines or Parquet. Rows from the hub come through `datasets`, which the core does not bring.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cleaner_rl.tools import read_json


class DatasetError(ValueError):
    """A data set doesn't have the form that its loader knows."""


class SkippedRowError(Exception):
    """A row that can't become a task; the rest of the data set can."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row, and its position in its file."""

    values: Mapping[str, object]
    number: int
    """Number of the row, from 1."""
    origin: str

    def get(self, *names: str) -> object:
        """Return the value of the first of these columns that is there and not null; None if none is."""
        for name in names:
            if self.values.get(name) is not None:
                return self.values[name]
        return None

    def need(self, *names: str) -> object:
        """Return the same as `get`; raise an error if there is none of these columns."""
        value = self.get(*names)
        if value is None:
            raise self.error(f"needs the column {' or '.join(map(repr, names))}")
        return value

    def text(self, *names: str) -> str:
        """Return a column that must hold text; numbers count as text."""
        value = self.need(*names)
        if isinstance(value, str | int | float) and str(value).strip():
            return str(value)
        raise self.error(f"needs text in the column {' or '.join(map(repr, names))}")

    def struct(self, name: str) -> Row:
        """Return a column that holds columns of its own, as a struct or as JSON text."""
        value = self.need(name)
        if isinstance(value, str):
            try:
                value = read_json(value)
            except ValueError:
                raise self.error(f"needs JSON in the column {name!r}") from None
        if not isinstance(value, Mapping):
            raise self.error(f"needs an object in the column {name!r}")
        return Row(value, self.number, f"{self.origin}, {name}")

    def error(self, what: str) -> DatasetError:
        """Return an error about this row: what is wrong, what is there, and what to do."""
        found = ", ".join(map(repr, self.values)) or "none"
        return DatasetError(
            f"{self.origin}, row {self.number}: this loader {what}; found {found}. "
            "Rename the column, or pick the loader that fits the file."
        )


def read_file(path: Path) -> Generator[Row, None, None]:
    """The rows of a local file, one after the other; close it if you stop before its end."""
    if not path.is_file():
        raise DatasetError(f"there is no file {path}; give a .jsonl or .parquet file, or load from the hub")
    origin = str(path)
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        with pq.ParquetFile(path) as file:
            rows = (row for batch in file.iter_batches(1_000) for row in batch.to_pylist())
            yield from (Row(row, number, origin) for number, row in enumerate(rows, 1))
    elif path.suffix == ".jsonl":
        with path.open(encoding="utf-8") as lines:
            yield from (Row(_object(line, n, origin), n, origin) for n, line in enumerate(lines, 1) if line.strip())
    else:
        raise DatasetError(f"{path} is neither .jsonl nor .parquet; convert it to one of them")


def read_hub(hub: str, config: str | None, split: str) -> Iterator[Row]:
    """The rows of a data set on the hub."""
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise ImportError("loading from the hub needs datasets: pip install 'cleaner-rl[eval]'") from error
    rows = load_dataset(hub, config, split=split)
    yield from (Row(row, number, f"{hub} ({split})") for number, row in enumerate(rows, 1))


def _object(line: str, number: int, origin: str) -> Mapping[str, object]:
    try:
        value = read_json(line)
    except ValueError as error:
        raise DatasetError(f"{origin}, line {number}: the line can't be read as JSON ({error}); correct it") from None
    if not isinstance(value, dict):
        raise DatasetError(f"{origin}, line {number}: the line isn't a JSON object; write one object per line")
    return value

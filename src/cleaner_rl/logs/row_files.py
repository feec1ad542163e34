"""Writes rows of training data to JSON lines or Parquet.

In Parquet, tools of one set share a type, so files are apart by tool set, in a folder each. A set that Arrow can't hold
(a tool without parameters), or not without inventing empty fields (two tools with different parameters), is JSON text
there; JSONL has it as it is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from enum import StrEnum
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from cleaner_rl.logs.formats.base import Record

ROWS_IN_GROUP = 1024
Column: TypeAlias = tuple[str, pa.DataType]
MESSAGE = pa.struct(
    [
        ("role", pa.string()),
        ("content", pa.string()),
        ("reasoning_content", pa.string()),
        (
            "tool_calls",
            pa.list_(
                pa.struct(
                    [
                        ("id", pa.string()),
                        ("type", pa.string()),
                        ("function", pa.struct([("name", pa.string()), ("arguments", pa.string())])),
                    ]
                )
            ),
        ),
        ("tool_call_id", pa.string()),
        ("name", pa.string()),
    ]
)
"""A message of a chat."""
SOURCE_COLUMNS: tuple[Column, ...] = (
    ("source_file", pa.string()),
    ("source_line", pa.int64()),
    ("source_id", pa.string()),
)
"""Where a row came from."""


class SftKind(StrEnum):
    """The kind of file that rows are written to."""

    JSONL = "jsonl"
    PARQUET = "parquet"


class RowWriter:
    """Writes rows with these columns and `tools` below a folder; a context manager. Without a folder it only counts."""

    def __init__(self, folder: Path | None, kind: SftKind, columns: Sequence[Column]) -> None:
        self._folder, self._kind, self._shape = folder, kind, columns
        self._stack = ExitStack()
        self._lines: BinaryIO | None = None
        self._line_count = 0
        self._columns: dict[str, _Columns] = {}

    @property
    def rows(self) -> int:
        """Return how many rows are written. At the end all of them are."""
        return self._line_count + sum(columns.row_count for columns in self._columns.values())

    def write(self, row: Record) -> None:
        """Add one row, unless it holds text that is no Unicode: no trainer could read it."""
        if self._folder is None:
            self._line_count += 1
            return
        if self._kind is SftKind.JSONL:
            if self._lines is None:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._lines = self._stack.enter_context((self._folder / "part.jsonl").open("wb"))
            if (line := _line(row)) is not None:
                self._lines.write(line)
                self._line_count += 1
            return
        tools = row["tools"]
        name = "none" if tools is None else blake2b(json.dumps(tools).encode(), digest_size=8).hexdigest()
        if name not in self._columns:
            path = self._folder / f"tools-{name}" / "part.parquet"
            self._columns[name] = self._stack.enter_context(_Columns(path, tools, self._shape))
        self._columns[name].write(row)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, traceback)


class _Columns:
    """One Parquet file, of rows with one tool set.

    It is opened when its first group of rows is full, or at the end: logs can have hundreds of tool sets, and a process
    may not have so many open files.
    """

    def __init__(self, path: Path, tools: list[Record] | None, columns: Sequence[Column]) -> None:
        self._path = path
        self._tools: Any = tools
        kind = None if tools is None else _type_of(tools)
        if tools is not None and kind is None:
            kind, self._tools = pa.string(), json.dumps(tools, ensure_ascii=False)
        self._schema = pa.schema([columns[0], *([] if tools is None else [("tools", kind)]), *columns[1:]])
        self._writer: pq.ParquetWriter | None = None
        self._rows: list[Record] = []
        self.row_count = 0

    def write(self, row: Record) -> None:
        self._rows.append({**row, "tools": self._tools})
        if len(self._rows) == ROWS_IN_GROUP:
            self._flush()

    def _flush(self) -> None:
        rows, self._rows = self._rows, []
        try:
            table = pa.Table.from_pylist(rows, schema=self._schema)
        except UnicodeEncodeError:
            table = pa.Table.from_pylist([row for row in rows if _line(row) is not None], schema=self._schema)
        if len(table):
            if self._writer is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._writer = pq.ParquetWriter(self._path, self._schema, compression="zstd")
            self._writer.write_table(table)
            self.row_count += len(table)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._flush()
        finally:
            if self._writer is not None:
                self._writer.close()


def _line(row: Record) -> bytes | None:
    """Return a row as JSON; None if it holds text that is no Unicode."""
    try:
        return json.dumps(row, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:
        return None


def _type_of(tools: list[Record]) -> pa.DataType | None:
    """Return the type of a set of tools; None if it doesn't come back from Parquet as it went in.

    Schemas of tools have objects without fields, booleans beside objects, a text beside a list: any of it is JSON, and
    none of it is Arrow's.
    """
    try:
        kind = pa.infer_type([tools])
        written = pa.BufferOutputStream()
        pq.write_table(pa.table([pa.array([tools], kind)], ["tools"]), written)
        read = pq.read_table(pa.BufferReader(written.getvalue()))
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        return None
    return kind if read["tools"].to_pylist() == [tools] else None

"""Writes rows of training data to JSON lines or Parquet, all files of an output with one schema.

In Parquet, a value without a schema of its own (a call's arguments, the tools) is a column of JSON: Hugging Face
datasets gives back the object, other readers see its text. JSON lines have it as it is, and a dataset card beside them
with the same schema, so that `load_dataset` of the folder need not guess one from the first file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from cleaner_rl.logs.formats.base import Record

ROWS_IN_GROUP = 1024
Column: TypeAlias = tuple[str, pa.DataType] | pa.Field
CARD = "README.md"
IS_JSON = {b"ARROW:extension:name": b"arrow.json", b"ARROW:extension:metadata": b""}
"""Marks text as JSON, in Arrow's own way."""
NAMES = {pa.float64(): "float64"}
"""What Hugging Face datasets calls types that Arrow calls otherwise."""


def json_field(name: str) -> pa.Field:
    """Return a column of JSON."""
    return pa.field(name, pa.string(), metadata=IS_JSON)


def message_type(arguments: pa.Field, more: Sequence[pa.Field] = ()) -> pa.DataType:
    """Return the type of a message of a chat whose calls have such arguments, with more fields at its end."""
    function = pa.struct([pa.field("name", pa.string()), arguments])
    call = pa.struct([("id", pa.string()), ("type", pa.string()), ("function", function)])
    texts = [pa.field(name, pa.string()) for name in ("role", "content", "reasoning_content")]
    named = [pa.field(name, pa.string()) for name in ("tool_call_id", "name")]
    return pa.struct([*texts, pa.field("tool_calls", pa.list_(call)), *named, *more])


MESSAGE = message_type(json_field("arguments"))
TOOLS = json_field("tools")
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
    """Writes rows with these columns to a folder; a context manager. Without a folder it only counts."""

    def __init__(self, folder: Path | None, kind: SftKind, columns: Sequence[Column]) -> None:
        self._folder, self._kind, self._schema = folder, kind, pa.schema(columns)
        self._stack = ExitStack()
        self._lines: BinaryIO | None = None
        self._table: pq.ParquetWriter | None = None
        self._waiting: list[Record] = []
        self.rows = 0
        """How many rows are written. At the end all of them are."""

    def write(self, row: Record) -> None:
        """Add one row, unless it holds text that is no Unicode: no trainer could read it."""
        if self._folder is None:
            self.rows += 1
        elif self._kind is SftKind.JSONL:
            if (line := _line(row)) is not None:
                self._opened(self._folder).write(line)
                self.rows += 1
        else:
            self._waiting.append(row)
            if len(self._waiting) == ROWS_IN_GROUP:
                self._flush(self._folder)

    def _opened(self, folder: Path) -> BinaryIO:
        if self._lines is None:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / CARD).write_text(card(self._schema))
            self._lines = self._stack.enter_context((folder / "part.jsonl").open("wb"))
        return self._lines

    def _flush(self, folder: Path) -> None:
        rows, self._waiting = self._waiting, []
        try:
            table = _table(rows, self._schema)
        except UnicodeEncodeError:
            table = _table([row for row in rows if _line(row) is not None], self._schema)
        if len(table):
            if self._table is None:
                folder.mkdir(parents=True, exist_ok=True)
                # It is opened late: a unit without rows has no file.
                self._table = pq.ParquetWriter(folder / "part.parquet", self._schema, compression="zstd")
                self._stack.enter_context(self._table)
            self._table.write_table(table)
            self.rows += len(table)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._folder is not None:
                self._flush(self._folder)
        finally:
            self._stack.__exit__(kind, error, traceback)


def card(schema: pa.Schema) -> str:
    """Return a dataset card with the types of the columns, which Hugging Face datasets reads."""
    lines = ["---", "dataset_info:", "  features:", *(f"  {line}" for line in _features(schema)), "---"]
    return "\n".join([*lines, "Rows of `cleaner purify --sft`.", ""])


def _features(fields: Sequence[pa.Field]) -> Iterator[str]:
    for field in fields:
        yield f"- name: {field.name}"
        yield from (f"  {line}" for line in _feature(field))


def _feature(field: pa.Field) -> Iterator[str]:
    kind = field.type
    if pa.types.is_list(kind):
        (inner, *rest) = _feature(kind.value_field)
        if pa.types.is_struct(kind.value_type):
            yield "list:"
            yield from rest
        else:
            yield inner.replace("dtype", "list", 1)
    elif pa.types.is_struct(kind):
        yield "struct:"
        yield from _features([kind.field(index) for index in range(kind.num_fields)])
    else:
        yield f"dtype: {'json' if _is_json(field) else NAMES.get(kind, str(kind))}"


def _is_json(field: pa.Field) -> bool:
    return bool((field.metadata or {}).get(b"ARROW:extension:name") == b"arrow.json")


def _table(rows: Sequence[Record], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(
        [{each.name: _stored(row.get(each.name), each) for each in schema} for row in rows], schema
    )


def _stored(value: Any, field: pa.Field) -> Any:
    """Return a value as Arrow takes it, with JSON as text."""
    if _is_json(field):
        return None if value is None else json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return [_stored(each, field.type.value_field) for each in value]
    if isinstance(value, dict):
        fields = [field.type.field(index) for index in range(field.type.num_fields)]
        return {each.name: _stored(value.get(each.name), each) for each in fields}
    return value


def _line(row: Record) -> bytes | None:
    """Return a row as JSON; None if it holds text that is no Unicode."""
    try:
        return json.dumps(row, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:
        return None

"""Writes records as they came: to the same kind of file, with everything else in that file carried over."""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from cleaner_rl.logs.containers import (
    SAMPLES,
    TORN,
    Broken,
    Chunk,
    Kind,
    LogError,
    Piece,
    members,
    opened,
    plain_columns,
)
from cleaner_rl.logs.formats.base import LINES
from cleaner_rl.logs.places import open_file
from cleaner_rl.logs.secrets import SecretScanner

Kept = Sequence[tuple[int, Any]]
"""Of a chunk, the place of each record that is kept, and what it is now."""


class Sink:
    """Writes a piece of a file to a new file; a context manager.

    A redactor takes the secrets out of what is not in the records, which have none any more.
    """

    def __init__(self, piece: Piece, path: Path, redactor: SecretScanner | None = None) -> None:
        self._piece, self._path, self._redactor = piece, path, redactor
        self._stack = ExitStack()

    def write(self, chunk: Chunk, kept: Kept) -> None:
        """Add what is kept of a chunk."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def _redacted(self, value: Any) -> Any:
        return value if self._redactor is None else self._redactor.redact(value, Counter())

    def _redacted_bytes(self, data: bytes) -> bytes:
        text = data.decode(errors="surrogateescape")
        return str(self._redacted(text)).encode(errors="surrogateescape")

    def _open(self) -> Any:
        file = self._stack.enter_context(self._path.open("wb"))
        if self._piece.packing is None:
            return file
        return self._stack.enter_context(pa.CompressedOutputStream(pa.PythonFile(file, "w"), self._piece.packing))


class _Lines(Sink):
    def __enter__(self) -> Self:
        super().__enter__()
        self._file = self._open()
        return self

    def write(self, chunk: Chunk, kept: Kept) -> None:  # noqa: ARG002
        for _, record in kept:
            for line in _lines_of(record) if self._piece.one_record else [record]:
                self._file.write(_json(line) + b"\n")


class _Document(Sink):
    def write(self, chunk: Chunk, kept: Kept) -> None:
        records = [record for _, record in kept]
        document = chunk.source
        if self._piece.one_record:
            document = records[0][LINES] if records else None
        elif isinstance(document, list):
            document = records
        elif document is not None and isinstance(document.get("samples"), list) and "eval" in document:
            others = {name: value for name, value in document.items() if name != "samples"}
            document = {**document, **self._redacted(others), "samples": records}
        elif records:
            document = records[0]
        else:
            return
        if document is not None:
            self._open().write(_json(document, indent=2))


class _Columns(Sink):
    def __enter__(self) -> Self:
        super().__enter__()
        with closing(open_file(self._piece.uri)) as source:
            self._schema = pq.read_schema(source)
        self._plain = plain_columns(self._schema)
        if self._redactor is not None:
            self._must_be_readable(self._schema)
            metadata = self._schema.metadata or {}
            self._schema = self._schema.with_metadata(
                {name: self._redacted_bytes(value) for name, value in metadata.items()}
            )
        self._writer = self._stack.enter_context(pq.ParquetWriter(self._path, self._schema, compression="zstd"))
        return self

    def write(self, chunk: Chunk, kept: Kept) -> None:
        places = [place for place, _ in kept]
        plain = pa.schema([self._schema.field(name) for name in self._plain])
        made = pa.RecordBatch.from_pylist([record for _, record in kept], schema=plain)
        taken = chunk.source.take(pa.array(places, pa.int64()))
        columns = [(made if name in self._plain else taken).column(name) for name in self._schema.names]
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def _must_be_readable(self, schema: pa.Schema) -> None:
        """Raise an error if a column is carried over as it is that can hold text."""
        for column in schema:
            if column.name not in self._plain and not (
                pa.types.is_temporal(column.type) or pa.types.is_decimal(column.type)
            ):
                raise LogError(
                    f"{self._piece.uri} has the column {column.name!r} ({column.type}), in which secrets can't be "
                    "looked for. Use --redact without --same, or take the column out"
                )


class _Members(Sink):
    """A zip: members that are no samples come first, as they are."""

    def __enter__(self) -> Self:
        super().__enter__()
        with ExitStack() as stack, opened(self._piece.uri) as source, zipfile.ZipFile(source) as archive:
            self._zip = stack.enter_context(zipfile.ZipFile(self._path, "w", zipfile.ZIP_DEFLATED))
            for name, data in members(archive, [each for each in archive.namelist() if not each.startswith(SAMPLES)]):
                self._zip.writestr(name, data if self._redactor is None else self._redacted_bytes(data))
            self._stack = stack.pop_all()
        return self

    def write(self, chunk: Chunk, kept: Kept) -> None:
        for _, record in kept:
            self._zip.writestr(chunk.source, _json(record))


def _lines_of(record: Any) -> list[Any]:
    """Return the lines of a record that is a file."""
    if isinstance(record, Broken):
        return [Broken(record.text.removesuffix("\n"), record.reason)]
    return [*record[LINES], *([Broken(record[TORN], "")] if TORN in record else [])]


SINKS: dict[Kind, type[Sink]] = {
    Kind.JSONL: _Lines,
    Kind.JSON: _Document,
    Kind.PARQUET: _Columns,
    Kind.EVAL: _Members,
}


def _json(value: Any, indent: int | None = None) -> bytes:
    if isinstance(value, Broken):
        return value.as_bytes()
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent).encode()
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent).encode()  # JSON can spell what UTF-8 can't

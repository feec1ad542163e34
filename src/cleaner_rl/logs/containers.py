"""Reads records out of files of any kind: JSONL, JSON, Parquet, Inspect's zip, and our own store.

JSONL and JSON may be compressed with gzip or zstd, which is known by their first bytes. A whole file of theirs can be
one record, as the session files of coding agents are.

A *piece* is as much of a file as one worker takes: some megabytes of lines, a row group, a whole zip. Its records come
in chunks, so that memory stays constant; and a *sink* writes them again as they came: the same lines, the same columns
(with types that JSON has no words for carried over as they are), the same members of the zip.

A compressed file is untrusted: what it may expand to is bounded, for each member and for the file, before memory is
taken for it. A file beyond the bounds is a damaged one.

Limits: a JSON document is read as a whole, and so is each sample of a zip. Inspect's chunked samples, which it writes
for very long ones, aren't read; convert such a log with `inspect log convert` first."""

from __future__ import annotations

import io
import os
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import islice
from json import JSONDecodeError
from typing import Any, BinaryIO, NamedTuple, cast

import pyarrow as pa
import pyarrow.parquet as pq

from cleaner_rl.logs.formats.base import LINES
from cleaner_rl.logs.places import FoundFile, is_remote, open_file
from cleaner_rl.tools import read_json
from cleaner_rl.trajectory.store import VERSION_KEY

CHUNK, CHUNK_BYTES = 256, 64 << 20
"""Records at a time; fewer if they are very long."""
HEAD = 64
"""So many of a file's first records are looked at to tell whether the file is one record."""
READ_BYTES = 1 << 20
NEXT_LINES = 8
"""Where a file's first line is no JSON, so many further ones are looked at to tell what it is."""
SAMPLES = "samples/"
ZSTD, LOCAL_HEADER = 93, 30
"""Of a zip: the number of a compression, and the bytes before a member's name."""
COMPRESSIONS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, ZSTD}
"""Those that Inspect writes. Python's zip reader bounds what it takes from these, but not from bzip2 or LZMA."""
ENCRYPTED = 0x1
"""The flag of a member of a zip that needs a password."""
MEMBER_BYTES = 128 << 20
"""A member of a zip may have at most this many bytes: it is read as a whole, and takes several times as much memory."""
EXPANDED_BYTES, EXPANSION = 256 << 20, 250
"""A compressed file may expand to this many bytes, or to this many times its own size, whichever is more."""
FILE_BYTES = 128 << 20
"""A file that is one record may have at most this many bytes, for the same reason."""
ROWS = 16
"""Rows of Parquet that are decoded at a time. They can share one long text, which then takes memory for each."""
PARQUET_MAGIC, ZIP_MAGIC = b"PAR1", b"PK\x03\x04"
PACKINGS = {b"\x1f\x8b": "gzip", b"\x28\xb5": "zstd"}
"""Arrow's names of compressions, by the first bytes of a file."""
TORN = "torn"
"""The field of a record that is a file for the text of a last line that breaks off."""


class Kind(StrEnum):
    """The kind of a file."""

    JSONL = "jsonl"
    JSON = "json"
    PARQUET = "parquet"
    EVAL = "eval"
    STORE = "store"
    """Trajectories as we store them, in Parquet or JSONL."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a file."""

    uri: str
    name: str
    """A path for what becomes of it: at first its file's, below the place that it was found in."""
    kind: Kind
    start: int = 0
    """The first byte, or row group."""
    end: int | None = None
    number: int = 0
    """Which of its file's pieces it is."""
    whole: bool = True
    """Whether it is all of its file."""
    packing: str | None = None
    """How the file is compressed."""
    one_record: bool = False
    """Whether the file is one record."""
    first: int | None = field(default=1, compare=False)
    """The number of its first record in the file: its line, or its row, from 1; None if nobody counted."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A line, or a sample of a zip, that can't be read as JSON."""

    text: str
    """Its bytes, as UTF-8; those that are none are `surrogateescape`d, so that they come back as they were."""
    reason: str
    """What is wrong with it."""

    def as_bytes(self) -> bytes:
        """Return the bytes as they are in the file."""
        return self.text.encode(errors="surrogateescape")


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some records, and for the sink what they came from."""

    records: Sequence[Any]
    source: Any = field(default=None, repr=False)
    lines: Sequence[int | None] = ()
    """For each record its line or row in the file, from 1; empty if the file has none."""


class PurifyError(Exception):
    """Purifying logs can't begin or go on; the message says what happened and what to do."""


class ExtraMissingError(PurifyError):
    """An extra of cleaner-rl is not installed."""


class LogError(PurifyError):
    """A log can't be read."""


class DamagedError(LogError):
    """A file isn't whole (it breaks off, or its checksums are wrong), or expands to more than is read of a file."""


class _TooLargeError(Exception):
    """A file has, or expands to, more than the bounds of this module."""


class _Unpacked(io.RawIOBase):
    """Reads a compressed file, and raises an error where it expands to more than the bounds allow."""

    def __init__(self, file: BinaryIO, packing: str) -> None:
        self._left = max(EXPANDED_BYTES, EXPANSION * _size(file))
        self._stream = pa.CompressedInputStream(pa.PythonFile(file, "r"), packing)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data: bytes = self._stream.read(len(buffer))
        self._left -= len(data)
        if self._left < 0:
            raise _TooLargeError(f"it has more than {EXPANSION} times as many bytes as the file")
        buffer[: len(data)] = data
        return len(data)


@contextmanager
def opened(uri: str) -> Iterator[BinaryIO]:
    """Open a file to read. If that fails, the error names the file."""
    try:
        file = open_file(uri)
    except OSError as error:
        if is_remote(uri):
            raise  # it may as well be the network
        raise LogError(f"{uri} can't be opened: {error.strerror}; let this user read it, or leave it out") from error
    with closing(file), _telling_damage(uri):
        yield file


def unpacked(file: BinaryIO, packing: str | None) -> BinaryIO:
    """Return an open file as it is before compression."""
    return file if packing is None else cast("BinaryIO", io.BufferedReader(_Unpacked(file, packing), READ_BYTES))


DAMAGE = (
    *(pa.ArrowException, zipfile.BadZipFile, zlib.error, struct.error),
    *(EOFError, NotImplementedError, UnicodeDecodeError, OverflowError),
)
"""What Arrow and Python's zip reader raise on a file that isn't whole, or was made to harm them."""


@contextmanager
def _telling_damage(uri: str) -> Iterator[None]:
    """Turn what Arrow and zips raise on a file that isn't whole into an error that names the file."""
    try:
        yield
    except _TooLargeError as error:
        raise DamagedError(
            f"{uri} expands to too much: {error}; leave it out, or convert it to JSONL if it is a log of yours"
        ) from None
    except DAMAGE as error:
        raise _damaged(uri, error) from error
    except OSError as error:
        # Arrow raises these on damage too, without a number; from afar it may as well be the network.
        if error.errno is not None or is_remote(uri):
            raise
        raise _damaged(uri, error) from error


def _damaged(uri: str, error: Exception) -> DamagedError:
    return DamagedError(f"{uri} is damaged ({error}); restore it from a copy, or leave it out")


class Look(NamedTuple):
    """What a file is, by its content."""

    kind: Kind
    packing: str | None = None


def look_at(found: FoundFile) -> Look:
    """Return what a file is, by its content."""
    with opened(found.uri) as file:
        head = file.read(4)
        file.seek(0)
        packing = PACKINGS.get(head[:2])
        return (
            Look(_kind_of_text(unpacked(file, packing), found.uri), packing)
            if packing
            else Look(_kind_of(found, file, head))
        )


def _kind_of(found: FoundFile, file: BinaryIO, head: bytes) -> Kind:
    if head == PARQUET_MAGIC:
        metadata = pq.read_schema(file).metadata or {}
        return Kind.STORE if VERSION_KEY in metadata else Kind.PARQUET
    if head == ZIP_MAGIC:
        with zipfile.ZipFile(file) as archive:
            if any(name.startswith(SAMPLES) for name in archive.namelist()):
                return Kind.EVAL
        raise LogError(f"{found.uri} is a zip without samples, so it is not an Inspect log; leave it out")
    return _kind_of_text(file, found.uri)


def _kind_of_text(file: BinaryIO, uri: str) -> Kind:
    lines = filter(bytes.strip, iter(lambda: file.readline(FILE_BYTES), b""))
    first = next(lines, b"")
    record = _parsed(first)
    if not isinstance(record, Broken):
        if isinstance(record, dict) and isinstance(record.get("schema_version"), int) and "turns" in record:
            return Kind.STORE
        return Kind.JSON if isinstance(record, list) or _is_log(record) else Kind.JSONL
    others = list(islice(lines, NEXT_LINES))
    opens = first.lstrip()[:1] in (b"{", b"[")
    if not (opens and _is_unfinished(b"".join((first, *others)))):
        if any(isinstance(_parsed(line), dict) for line in others):
            return Kind.JSONL
        if not first:
            raise LogError(f"{uri} is empty; leave it out")
        if not opens:
            raise LogError(
                f"{uri} is neither JSONL, JSON, Parquet nor a zip: it begins with {first.strip()[:20]!r}; "
                "leave it out, or convert it"
            )
    return Kind.JSON


def pieces_of(found: FoundFile, look: Look, size: int, *, one_record: bool = False) -> Iterator[Piece]:
    """Yield a file in pieces of about this many bytes, if its kind can be split."""
    kind, packing = look
    if one_record and found.size > FILE_BYTES:
        raise LogError(
            f"{found.uri} has {found.size:,} bytes, and a file that is one record may have {FILE_BYTES:,}; "
            "leave it out, or split it into sessions"
        )
    if kind is Kind.JSONL and packing is None and not one_record:
        starts = range(0, found.size, size)
        for number, start in enumerate(starts):
            end, first = min(start + size, found.size), None if number else 1
            yield Piece(found.uri, found.name, kind, start, end, number, len(starts) == 1, first=first)
    elif kind is Kind.PARQUET:
        with opened(found.uri) as file:
            metadata = pq.ParquetFile(file).metadata
        first_row = 1
        for number in range(metadata.num_row_groups):
            whole = metadata.num_row_groups == 1
            yield Piece(found.uri, found.name, kind, number, number + 1, number, whole, first=first_row)
            first_row += metadata.row_group(number).num_rows
    else:
        yield Piece(found.uri, found.name, kind, packing=packing, one_record=one_record)


def with_lines(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """Yield the pieces of a file, each with the number of its first line.

    The lines before it have to be counted. Of a file elsewhere that would be one more download, so it isn't done.
    """
    if len(pieces) < 2 or pieces[0].kind is not Kind.JSONL or is_remote(pieces[0].uri):
        yield from pieces
        return
    breaks = position = 0
    with opened(pieces[0].uri) as file:
        for piece in pieces:
            # The byte before the start ends a line, or is in one that belongs to the piece before.
            while position < piece.start - 1 and (data := file.read(min(READ_BYTES, piece.start - 1 - position))):
                breaks += data.count(b"\n")
                position += len(data)
            yield replace(piece, first=breaks + 2 if piece.start else 1)


def chunks_of(piece: Piece) -> Iterator[Chunk]:
    """Yield the records of a piece, in order."""
    with opened(piece.uri) as file:
        if piece.one_record:
            yield Chunk([_file_record(unpacked(file, piece.packing), piece)], lines=[1])
        elif piece.kind is Kind.JSONL:
            yield from _chunked(_lines(unpacked(file, piece.packing), piece))
        elif piece.kind is Kind.PARQUET:
            yield from _rows(file, piece)
        elif piece.kind is Kind.EVAL:
            with zipfile.ZipFile(file) as archive:
                for name, data in members(archive, _samples(archive, piece.uri)):
                    yield Chunk([_parsed(data)], name)
        else:
            document = _document(unpacked(file, piece.packing), piece)
            records = _records(document)
            yield Chunk(records, document, range(1, len(records) + 1) if isinstance(document, list) else ())


def _chunked(lines: Iterator[tuple[Any, int | None]]) -> Iterator[Chunk]:
    """Yield records of lines in chunks; of a damaged file, those before the damage."""
    records: list[Any] = []
    numbers: list[int | None] = []
    try:
        for record, number in lines:
            records.append(record)
            numbers.append(number)
            if len(records) == CHUNK:
                yield Chunk(records, lines=numbers)
                records, numbers = [], []
    except (*DAMAGE, _TooLargeError, OSError):
        if records:
            yield Chunk(records, lines=numbers)
        raise
    if records:
        yield Chunk(records, lines=numbers)


def _document(file: BinaryIO, piece: Piece) -> Any:
    try:
        return read_json(file.read())
    except ValueError as error:
        raise DamagedError(f"{piece.uri} is not valid JSON: {error}; correct it, or leave it out") from None


def _file_record(file: BinaryIO, piece: Piece) -> Any:
    """Return a whole file as one record. If a line can't be read, it is broken, unless that is the last one."""
    data = file.read(FILE_BYTES + 1)
    if len(data) > FILE_BYTES:
        raise _TooLargeError(f"a file that is one record may have {FILE_BYTES:,} bytes")
    if piece.kind is Kind.JSON:
        return {LINES: _document(io.BytesIO(data), piece)}
    *lines, last = [_parsed(line) for line in data.split(b"\n") if line.strip()]
    if any(isinstance(line, Broken) for line in lines):
        return Broken(data.decode(errors="surrogateescape"), "a file with a line that is not valid JSON")
    return {LINES: lines, TORN: last.text} if isinstance(last, Broken) else {LINES: [*lines, last]}


def first_records(piece: Piece, count: int = HEAD) -> list[Any]:
    """Return the first records that can be read, at most this many, for detecting their format."""
    found: list[Any] = []
    for chunk in chunks_of(piece):
        found += [record for record in chunk.records if not isinstance(record, Broken)]
        if found:
            break
    return found[:count]


def plain_columns(schema: pa.Schema) -> list[str]:
    """Return the columns whose types JSON has."""
    return [each.name for each in schema if _foreign(each.type) is None]


def foreign_columns(uri: str) -> dict[str, pa.DataType]:
    """Return the other columns of a Parquet file, and in each the type that JSON doesn't have."""
    with opened(uri) as file:
        found = {each.name: _foreign(each.type) for each in pq.read_schema(file)}
    return {name: kind for name, kind in found.items() if kind is not None}


def members(archive: zipfile.ZipFile, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Yield members of a zip, each with its content. Raises an error before it reads more than the bounds allow."""
    file: Any = archive.fp
    left = max(EXPANDED_BYTES, EXPANSION * _size(file))
    for info in map(archive.getinfo, names):
        # The sizes are the file's own claims. What is read below never goes beyond them.
        left -= info.file_size
        if info.file_size > MEMBER_BYTES:
            raise _TooLargeError(f"{info.filename} has {info.file_size:,} bytes, more than {MEMBER_BYTES:,}")
        if left < 0:
            raise _TooLargeError(f"its members have more than {EXPANSION} times as many bytes as the file")
        yield info.filename, _member(archive, info)


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """Return a member. Inspect compresses members with zstd, which Python's own reader knows from 3.14 on."""
    if info.compress_type not in COMPRESSIONS or info.flag_bits & ENCRYPTED:
        raise zipfile.BadZipFile(f"{info.filename} is encrypted, or compressed in a way that Inspect doesn't use")
    if info.compress_type != ZSTD:
        with archive.open(info) as member:
            return member.read(info.file_size + 1)
    file: Any = archive.fp
    file.seek(info.header_offset + LOCAL_HEADER - 4)
    name_length, extra_length = struct.unpack("<HH", file.read(4))
    file.seek(name_length + extra_length, os.SEEK_CUR)
    packed = file.read(min(info.compress_size, _size(file)))
    data: bytes = pa.decompress(packed, info.file_size, "zstd", asbytes=True)
    if zlib.crc32(data) != info.CRC:
        raise zipfile.BadZipFile(f"the checksum of {info.filename} is wrong")
    return data


def _size(file: BinaryIO) -> int:
    """Return the number of bytes of an open file; its position stays."""
    here = file.tell()
    size = file.seek(0, os.SEEK_END)
    file.seek(here)
    return size


def _lines(file: BinaryIO, piece: Piece) -> Iterator[tuple[Any, int | None]]:
    """Yield the records of the lines that begin in the piece, each with the number of its line."""
    number = piece.first
    if piece.start:
        # A line that begins right here follows a line break; one that began before belongs to the piece before.
        file.seek(piece.start - 1)
        file.readline()
    while piece.end is None or file.tell() < piece.end:
        line = file.readline() if piece.packing is None else file.readline(FILE_BYTES)
        if not line:
            return
        if piece.packing is not None and len(line) == FILE_BYTES:
            raise _TooLargeError(f"a line of a compressed file may have {FILE_BYTES:,} bytes")
        if line.strip():
            yield _parsed(line.removesuffix(b"\n")), number
        number = None if number is None else number + 1


def _parsed(data: bytes) -> Any:
    try:
        return read_json(data)
    except (JSONDecodeError, UnicodeDecodeError):
        reason = "text that is not valid JSON"
    except ValueError as error:
        reason = f"JSON that can't be read: {error}"
    return Broken(data.decode(errors="surrogateescape"), reason)


def _is_unfinished(lines: bytes) -> bool:
    """Return whether these lines begin a JSON document: only then is nothing wrong before their end."""
    text = lines.decode(errors="replace").rstrip()
    try:
        read_json(text)
    except JSONDecodeError as error:
        return error.pos >= len(text)
    except ValueError:
        return False
    return True


def _rows(file: BinaryIO, piece: Piece) -> Iterator[Chunk]:
    with pq.ParquetFile(file) as parquet:
        groups = range(piece.start, piece.end or 0)
        left = _expected_bytes(parquet, groups, _size(file))
        plain = pa.schema([_decoded(parquet.schema_arrow.field(name)) for name in plain_columns(parquet.schema_arrow)])
        batches: list[pa.RecordBatch] = []
        records: list[Any] = []
        held, row = 0, piece.first or 1
        for batch in parquet.iter_batches(ROWS, use_threads=False, row_groups=list(groups)):
            decoded = batch.select(plain.names).cast(plain)
            size = max(batch.nbytes, decoded.nbytes)
            held, left = held + size, left - size
            if left < 0:
                raise _TooLargeError(f"its rows have more than {EXPANSION} times the bytes that the file has for them")
            batches.append(batch)
            records += decoded.to_pylist()
            if len(records) >= CHUNK or held >= CHUNK_BYTES:
                yield Chunk(records, pa.concat_batches(batches), range(row, row + len(records)))
                row += len(records)
                batches, records, held = [], [], 0
        if records:
            yield Chunk(records, pa.concat_batches(batches), range(row, row + len(records)))


def _expected_bytes(parquet: pq.ParquetFile, groups: Sequence[int], size: int) -> int:
    """Return the most bytes that some row groups of a file of this size may expand to."""
    parts = [parquet.metadata.row_group(group) for group in groups]
    packed: int = sum(part.column(index).total_compressed_size for part in parts for index in range(part.num_columns))
    groups_of_file: int = parquet.num_row_groups
    return max(EXPANDED_BYTES // groups_of_file, EXPANSION * min(packed, size))


def _samples(archive: zipfile.ZipFile, uri: str) -> list[str]:
    names = [name for name in archive.namelist() if name.startswith(SAMPLES)]
    if any(name.count("/") > 1 for name in names):
        raise LogError(f"{uri} has chunked samples; convert it with `inspect log convert` first")
    return names


def _is_log(document: Any) -> bool:
    """Return whether it is one of Inspect's JSON logs."""
    return isinstance(document, dict) and isinstance(document.get("samples"), list) and "eval" in document


def _records(document: Any) -> list[Any]:
    if _is_log(document):
        return list(document["samples"])
    return document if isinstance(document, list) else [document]


def _decoded(column: pa.Field) -> pa.Field:
    """Return a column in which each row holds its value itself, and not a reference to one of a dictionary."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _decoded(column.with_type(kind.value_type))
    if pa.types.is_struct(kind):
        return column.with_type(pa.struct([_decoded(kind.field(index)) for index in range(kind.num_fields)]))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return column.with_type((pa.list_ if pa.types.is_list(kind) else pa.large_list)(_decoded(kind.value_field)))
    return column


def _foreign(kind: pa.DataType) -> pa.DataType | None:
    """Return the first type within a type that JSON doesn't have; None if it has them all."""
    if pa.types.is_struct(kind):
        inner = (_foreign(kind.field(index).type) for index in range(kind.num_fields))
        return next((each for each in inner if each is not None), None)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_dictionary(kind):
        return _foreign(kind.value_type)
    plain = (
        pa.types.is_null(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
    )
    return None if plain else kind

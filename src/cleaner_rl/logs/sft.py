"""Writes trajectories as rows for supervised fine-tuning: `messages`, `tools`, and a loss mask.

A row can be read by Hugging Face datasets and by verl's multi-turn SFT trainer. `loss_mask` has one entry per message.
It is 1 at the model's own turns, and 0 where somebody else speaks, at turns with a call that failed or was denied and
was not repaired (they are context, not examples), at turns of which nobody can tell how their calls ended (unless
`UnsureTurns.TRAIN` is chosen), and at turns without text or a call. verl's own data set trains on every assistant
message and knows no such column; give it rows without such turns (`clean_only`).

A trajectory that isn't read as turns makes no row, nor does one that holds more than text, calls and results, nor one
with text that is no Unicode.

In Parquet, tools of one set share a type, so files are apart by tool set, in a folder each. A set that Arrow can't hold
(a tool without parameters), or not without inventing empty fields (two tools with different parameters), is JSON text
there; JSONL has it as it is."""

from __future__ import annotations

import json
from contextlib import ExitStack
from enum import StrEnum
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import pyarrow as pa
import pyarrow.parquet as pq

from cleaner_rl.logs.formats.base import Record, log_of
from cleaner_rl.logs.records import chat_of_record
from cleaner_rl.trajectory import StopReason, Trajectory, Turn

ROWS_IN_GROUP = 1024
SOURCE = ("file", "line", "id")
"""Where a row came from."""
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


class UnsureTurns(StrEnum):
    """What becomes of turns with a call of which nobody can tell how it ended."""

    MASK = "mask"
    """They are context, and left out of the loss."""
    TRAIN = "train"
    """They are examples like turns whose calls worked."""


class SftKind(StrEnum):
    """The kind of file that rows are written to."""

    JSONL = "jsonl"
    PARQUET = "parquet"


def sft_row(
    trajectory: Trajectory[Any], *, clean_only: bool = False, unsure: UnsureTurns = UnsureTurns.MASK
) -> Record | None:
    """Return the row of a trajectory; None if it isn't read as turns, or has failures although none are wanted.

    A turn with calls is an example if all of them worked. One with a call that failed or was denied is not; nor, unless
    `unsure` says so, one of which nobody can tell how its calls ended. A turn that was cut off is no more to be learnt:
    a trainer would put an end behind it. Nor is one that says nothing. Raises `Unreadable` if the trajectory holds more
    than messages can.
    """
    if not trajectory.usable or not trajectory.turns:
        return None
    chat = chat_of_record(trajectory)
    if chat is None:
        return None
    unfit = {number for number, turn in enumerate(trajectory.turns) if not _is_example(turn, unsure)}
    said = zip(chat.turns, chat.messages, strict=True)
    unfit |= {turn for turn, message in said if turn is not None and not _has_words(message)}
    if trajectory.stop_reason is StopReason.TOKEN_LIMIT and not trajectory.turns[-1].results:
        unfit.add(len(trajectory.turns) - 1)
    if clean_only and unfit:
        return None
    mask = [int(turn is not None and turn not in unfit) for turn in chat.turns]
    key = trajectory.key
    source = log_of(trajectory).get("source", {})
    return {
        "messages": chat.messages,
        "tools": chat.tools,
        "loss_mask": mask,
        "task": key.task,
        "rollout": key.rollout,
        "reward": trajectory.reward,
        "edits": len(trajectory.edits),
        **{f"source_{name}": source.get(name) for name in SOURCE},
    }


def _is_example(turn: Turn[Any], unsure: UnsureTurns) -> bool:
    """Return whether a turn's calls are worth learning: there are none, or they worked."""
    if turn.calls and not turn.results:
        return unsure is UnsureTurns.TRAIN
    return not turn.calls or turn.verified


def _has_words(message: Record) -> bool:
    text = message.get("content")
    spoken = text.strip() if isinstance(text, str) else text
    return bool(spoken or message.get("reasoning_content") or message.get("tool_calls"))


class SftWriter:
    """Writes rows below a folder; a context manager."""

    def __init__(self, folder: Path, kind: SftKind) -> None:
        self._folder, self._kind = folder, kind
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
            self._columns[name] = self._stack.enter_context(_Columns(path, tools))
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

    def __init__(self, path: Path, tools: list[Record] | None) -> None:
        self._path = path
        self._tools: Any = tools
        kind = pa.null() if tools is None else _type_of(tools)
        if tools is not None and kind is None:
            kind, self._tools = pa.string(), json.dumps(tools, ensure_ascii=False)
        columns = [
            ("messages", pa.list_(MESSAGE)),
            ("tools", kind),
            ("loss_mask", pa.list_(pa.int8())),
            ("task", pa.string()),
            ("rollout", pa.int64()),
            ("reward", pa.float64()),
            ("edits", pa.int32()),
            ("source_file", pa.string()),
            ("source_line", pa.int64()),
            ("source_id", pa.string()),
        ]
        self._schema = pa.schema([column for column in columns if tools is not None or column[0] != "tools"])
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

"""A file's lines for the index. Of Parquet they are computed column by column, without making trajectories.

`summary.summarise` is what a line means; this is the same for a whole group of rows at once, many times as fast, and a
property test holds the two together. Only the columns that count are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import astuple
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cleaner_rl.tools import Status
from cleaner_rl.trajectory import RepairKind
from cleaner_rl.trajectory.store import SCHEMA, StoreError, bounded_batches, read
from cleaner_rl.view.summary import SNIPPET, STATUS_BITS, Summary, rescue, summarise
from cleaner_rl.view.titles import source_of, title_of

COLUMNS = pa.schema(
    [
        ("row", pa.int64()),
        ("run", pa.string()),
        ("phase", pa.string()),
        ("step", pa.int64()),
        ("task", pa.string()),
        ("rollout", pa.int64()),
        ("reward", pa.float64()),
        ("success", pa.bool_()),
        ("stop_reason", pa.string()),
        ("turns", pa.int32()),
        ("length", pa.int64()),
        ("tokens", pa.bool_()),
        ("calls", pa.int32()),
        ("failed", pa.int32()),
        ("first_calls", pa.int32()),
        ("first_failed", pa.int32()),
        ("failed_turns", pa.int32()),
        ("repaired_turns", pa.int32()),
        ("grafts", pa.int32()),
        ("replacements", pa.int32()),
        ("uncorrected", pa.int32()),
        ("similarity", pa.float64()),
        ("logprob_gap", pa.float64()),
        ("statuses", pa.int32()),
        ("kept", pa.bool_()),
        ("verdict", pa.string()),
        ("rescue_of", pa.int64()),
        ("rescue_turn", pa.int64()),
        ("title", pa.string()),
        ("source", pa.string()),
        ("prompt", pa.string()),
        ("answer", pa.string()),
    ]
)
"""The row in its file, then the fields of `Summary`."""
WANTED = (
    *("run", "step", "task", "rollout", "reward", "success", "stop_reason", "info"),
    *("phase", "prompt.text", "prompt.ids"),
    *(f"turns.{span}.{part}" for span in ("reasoning", "action", "observation") for part in ("text", "ids")),
    *(f"turns.{span}.{part}" for span in ("reasoning", "action") for part in ("sampled", "rescored")),
    *("turns.results.status", "turns.attempt", "turns.edit.kind", "turns.edit.similarity"),
    *("replaced.results.status", "replaced.attempt", "replaced.edit.kind", "replaced.under"),
)
KEY_COLUMNS = ("run", "phase", "step", "task", "rollout", "reward", "success", "stop_reason")
OK, FAULT = list(Status).index(Status.OK), list(Status).index(Status.FAULT)
Ints = npt.NDArray[np.int64]


def lines_of(path: Path) -> pa.Table:
    """One line for each trajectory of a file."""
    return pa.concat_tables([COLUMNS.empty_table(), *tables_of(path)])


def tables_of(path: Path) -> Iterator[pa.Table]:
    """The same, some hundred at a time."""
    if path.suffix == ".parquet":
        with pq.ParquetFile(path, memory_map=True) as file:
            if file.schema_arrow.equals(SCHEMA):
                yield from _tables(file, path)
                return
    yield table_of(summarise(trajectory) for trajectory in read(path))


def table_of(summaries: Iterable[Summary]) -> pa.Table:
    """Lines as a table."""
    rows = [(number, *astuple(summary)) for number, summary in enumerate(summaries)]
    columns = zip(*rows, strict=True) if rows else ((),) * len(COLUMNS)
    return pa.Table.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, COLUMNS, strict=True)], schema=COLUMNS
    )


def _tables(file: pq.ParquetFile, path: Path) -> Iterator[pa.Table]:
    paths = [file.schema.column(place).path for place in range(len(file.schema))]
    leaves = [path for path in paths if path.replace(".list.element", "") in WANTED]
    start = 0
    for batch in bounded_batches(file, path, leaves):
        yield _table(batch, start)
        start += len(batch)


class _Turns:
    """The turns of a batch, in one column, with the trajectory that each is of."""

    def __init__(self, column: pa.ListArray) -> None:
        bounds, self.values = _lists(column)
        self.counts = np.diff(bounds)
        self.owners: Ints = np.repeat(np.arange(len(self.counts)), self.counts)
        self.ends = bounds[1:]
        result_bounds, results = _lists(self.values.field("results"))
        self.statuses: Ints = pc.index_in(results.field("status"), _statuses()).to_numpy().astype(np.int64)
        self.result_turns: Ints = np.repeat(np.arange(len(self.values)), np.diff(result_bounds))
        size = len(self.values)
        self.calls = np.bincount(self.result_turns[self.statuses != FAULT], minlength=size)
        failures = self.result_turns[(self.statuses != FAULT) & (self.statuses != OK)]
        self.failed = np.bincount(failures, minlength=size)
        edits = self.values.field("edit")
        self.kinds = edits.field("kind").to_numpy(zero_copy_only=False)
        edited = np.array([kind is not None for kind in self.kinds], np.bool_)
        self.unaided = ~edited & (self.values.field("attempt").to_numpy() == 0)


def _table(batch: pa.RecordBatch, start: int) -> pa.Table:
    rows = len(batch)
    turns, replaced = _Turns(batch.column("turns")), _Turns(batch.column("replaced"))
    prompt = batch.column("prompt")
    tokens = prompt.field("ids").is_valid()

    def total(values: npt.NDArray[Any], owners: Ints) -> Ints:
        return np.bincount(owners, weights=values, minlength=rows).astype(np.int64)

    def of_both(values: npt.NDArray[Any], of_replaced: npt.NDArray[Any]) -> Ints:
        return total(values, turns.owners) + total(of_replaced, replaced.owners)

    lengths = _length(prompt) + sum(
        total(_length(turns.values.field(span)), turns.owners) for span in ("reasoning", "action", "observation")
    )
    failing, failing_replaced = turns.unaided & (turns.failed > 0), replaced.unaided & (replaced.failed > 0)
    commits = np.isin(turns.kinds, [RepairKind.GRAFT, RepairKind.REPLACE])
    repaired = failing_replaced & commits[_roots(turns, replaced)] if len(replaced.values) else failing_replaced
    statuses = np.zeros(rows, np.int64)
    for each in (turns, replaced):
        bits = np.array(list(STATUS_BITS.values()))[each.statuses]
        np.bitwise_or.at(statuses, each.owners[each.result_turns], bits)
    infos = [_info(info) for info in batch.column("info").to_pylist()]
    said = [_said(info.get("verdict", info.get("roc"))) for info in infos]
    rescues = [rescue(info.get("rescued")) for info in infos]
    columns: list[Any] = [
        np.arange(start, start + rows),
        *(batch.column(name) for name in KEY_COLUMNS),
        turns.counts,
        lengths,
        tokens,
        total(turns.calls, turns.owners),
        total(turns.failed, turns.owners),
        of_both(turns.calls * turns.unaided, replaced.calls * replaced.unaided),
        of_both(turns.failed * turns.unaided, replaced.failed * replaced.unaided),
        of_both(failing, failing_replaced),
        total(repaired, replaced.owners),
        *(total(turns.kinds == kind.value, turns.owners) for kind in RepairKind),
        _least(turns),
        _gaps(turns, rows),
        statuses,
        [kept for kept, _ in said],
        [verdict for _, verdict in said],
        [of for of, _ in rescues],
        [turn for _, turn in rescues],
        [title_of(text, info) for text, info in zip(prompt.field("text").to_pylist(), infos, strict=True)],
        [source_of(info) for info in infos],
        pc.utf8_slice_codeunits(prompt.field("text"), -SNIPPET),
        _answers(turns),
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, COLUMNS, strict=True)]
    return pa.Table.from_arrays(arrays, schema=COLUMNS)


@cache
def _statuses() -> pa.Array:
    return pa.array([status.value for status in Status])


def _lists(lists: pa.ListArray) -> tuple[Ints, Any]:
    """Where each list ends in the values, from 0 on, and the values."""
    offsets = lists.offsets.to_numpy().astype(np.int64)
    return offsets - offsets[0], lists.values.slice(offsets[0], offsets[-1] - offsets[0])


def _length(spans: pa.StructArray) -> Ints:
    """Tokens of each span, or characters where there are none; 0 of one that isn't there."""
    tokens = pc.list_value_length(spans.field("ids"))
    length = pc.fill_null(pc.coalesce(tokens, pc.utf8_length(spans.field("text"))), 0)
    found: Ints = length.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _roots(turns: _Turns, replaced: _Turns) -> Ints:
    """For each replaced turn, the turn of the history whose edit holds it, at any depth."""
    first_turn = (turns.ends - turns.counts)[replaced.owners]
    first_replaced = (replaced.ends - replaced.counts)[replaced.owners]
    own = turns.counts[replaced.owners]
    under: Ints = replaced.values.field("under").to_numpy().astype(np.int64)
    numbers = own + np.arange(len(under)) - first_replaced
    if ((under < 0) | (under >= numbers)).any():
        # Anything else could lead in a circle.
        raise StoreError("a replaced turn isn't after the one it is under; write the store again from its source")
    while (deep := under >= own).any():
        # The turn above is a replaced one itself, numbered from the history's end on: take what that one is under.
        under = np.where(deep, under[np.where(deep, first_replaced + under - own, 0)], under)
    return first_turn + under


def _least(turns: _Turns) -> pa.Array:
    """The least similarity of each trajectory's edits; null where there is none."""
    similarity = turns.values.field("edit").field("similarity")
    known = similarity.is_valid().to_numpy(zero_copy_only=False)
    least = np.full(len(turns.counts), np.inf)
    np.minimum.at(least, turns.owners[known], similarity.drop_null().to_numpy())
    return pa.array(least, mask=np.isinf(least))


def _gaps(turns: _Turns, rows: int) -> list[float | None]:
    """The mean log-prob gap of each trajectory's edits. Edits are few, so they are walked."""
    found: list[list[float]] = [[] for _ in range(rows)]
    for place in np.flatnonzero(np.isin(turns.kinds, [RepairKind.GRAFT, RepairKind.REPLACE])).tolist():
        spans = ("action",) if turns.kinds[place] == RepairKind.GRAFT else ("reasoning", "action")
        losses: list[npt.NDArray[np.float32]] = []
        for span in spans:
            sampled, rescored = (turns.values.field(span).field(name)[place] for name in ("sampled", "rescored"))
            ids = turns.values.field(span).field("ids")[place]
            if not ids.is_valid:
                if turns.values.field(span).field("text")[place].as_py():
                    losses = []
                    break
                continue
            if not len(ids):
                continue
            if not (sampled.is_valid and rescored.is_valid):
                losses = []
                break
            losses.append(sampled.values.to_numpy() - rescored.values.to_numpy())
        if losses:
            found[turns.owners[place]].append(float(np.concatenate(losses).mean(dtype=np.float64)))
    return [float(np.mean(gaps)) if gaps else None for gaps in found]


def _answers(turns: _Turns) -> list[str]:
    """The end of each last turn."""
    there = turns.counts > 0
    last = turns.values.take(pa.array(turns.ends[there] - 1))
    pieces = [
        pc.fill_null(pc.utf8_slice_codeunits(last.field(span).field("text"), -SNIPPET), "").to_pylist()
        for span in ("reasoning", "action")
    ]
    ends = iter([(reasoning + action)[-SNIPPET:] for reasoning, action in zip(*pieces, strict=True)])
    return [next(ends) if each else "" for each in there]


def _info(info: str) -> dict[str, Any]:
    """What a line needs of the info; most have nothing of it and aren't read."""
    wanted = any(f'"{name}"' in info for name in ("verdict", "roc", "rescued", "messages", "log"))
    found = json.loads(info) if wanted else {}
    return found if isinstance(found, dict) else {}


def _said(verdict: object) -> tuple[bool | None, str | None]:
    """What resampling said: whether it kept the trajectory, and all of it. Earlier versions called it `roc`."""
    if not isinstance(verdict, dict) or not verdict:
        return None, None
    kept = verdict.get("kept")
    return kept if isinstance(kept, bool) else None, json.dumps(verdict)

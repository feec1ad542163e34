"""Versions 1 and 2 of the schema, read as the version of today.

Version 2 had no `kind` of a call: it is what the call's name and arguments say. Version 1 also had other names:

| version 1 | now |
| --- | --- |
| `ending`, `extra` | `stop_reason`, `info` |
| an edit's `granularity`, and its mode `live` | `kind`, `saar` |
| a run named `…-evaluation` | the run without it, in the phase `evaluation` |
| `extra`'s entry `put_in` | `injected` |
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from cleaner_rl.tools import call_kind
from cleaner_rl.trajectory.store.record import SCHEMA
from cleaner_rl.trajectory.trajectory import Phase

COLUMNS = {"ending": "stop_reason", "extra": "info"}
EDIT = {"granularity": "kind"}
MODES = {"live": "saar"}
INFO = {"put_in": "injected"}
SUFFIX = "-evaluation"
Record = dict[str, Any]


def known_record(record: Record, version: int) -> Record:
    """A JSONL record of any version that this release knows."""
    if version == 1:
        record = _record_of_1(record)
    if version <= 2:
        record = {**record, "turns": [_turn_with_kinds(turn) for turn in record["turns"]]}
    return record


def known_batch(batch: pa.RecordBatch, version: int) -> pa.RecordBatch:
    """Rows of a Parquet file of any version that this release knows."""
    if version == 1:
        batch = _batch_of_1(batch)
    if version <= 2:
        for name in ("turns", "replaced"):
            place = batch.schema.get_field_index(name)
            batch = batch.set_column(place, name, _lists_with_kinds(batch.column(name)))
    return batch


def _record_of_1(record: Record) -> Record:
    run, phase = _run_and_phase(record["run"])
    own = _renamed(record, COLUMNS)
    turns = [_turn(turn) for turn in record["turns"]]
    return {**own, "run": run, "phase": phase, "info": _info(own["info"]), "turns": turns}


def _batch_of_1(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = _renamed({name: batch.column(name) for name in batch.schema.names}, COLUMNS)
    runs = [_run_and_phase(run) for run in columns["run"].to_pylist()]
    columns["run"] = pa.array([run for run, _ in runs], pa.string())
    columns["phase"] = pa.array([phase for _, phase in runs], pa.string())
    columns["info"] = pa.array([_info(text) for text in columns["info"].to_pylist()], pa.string())
    for name in ("turns", "replaced"):
        columns[name] = _turns(columns[name])
    return pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], SCHEMA.names)


def phase_of(file: Path) -> Phase | None:
    """The phase that the folders around a file tell; None if they don't."""
    for folder in file.parts[-2::-1]:
        name, _, value = folder.partition("=")
        if name == "phase" and value in set(Phase):
            return Phase(value)
        if name == "run":  # of version 1, which had no folder for the phase
            return Phase(_run_and_phase(value)[1])
    return None


def _run_and_phase(run: str) -> tuple[str, str]:
    evaluated = run.endswith(SUFFIX)
    return run.removesuffix(SUFFIX), Phase.EVALUATION if evaluated else Phase.TRAINING


def _renamed(values: Record, names: dict[str, str]) -> Record:
    return {names.get(name, name): value for name, value in values.items()}


def _info(text: str) -> str:
    return text if text == "{}" else json.dumps(_renamed(json.loads(text), INFO))


def _turn(turn: Record) -> Record:
    edit = turn["edit"]
    if edit is None:
        return turn
    original = [_turn(each) for each in edit["original"]]
    mode = MODES.get(edit["mode"], edit["mode"])
    return {**turn, "edit": {**_renamed(edit, EDIT), "mode": mode, "original": original}}


def _turn_with_kinds(turn: Record) -> Record:
    calls = [{**call, "kind": _kind(call["name"], call["arguments"])} for call in turn["calls"]]
    edit = turn["edit"]
    if edit is not None:
        edit = {**edit, "original": [_turn_with_kinds(each) for each in edit["original"]]}
    return {**turn, "calls": calls, "edit": edit}


def _lists_with_kinds(lists: Any) -> pa.Array:
    """The same lists around the same turns, whose calls have a kind."""
    turns = _fields(lists.values)
    calls = _fields(turns["calls"].values)
    pairs = zip(calls["name"].to_pylist(), calls["arguments"].to_pylist(), strict=True)
    calls["kind"] = pa.array([_kind(name, arguments) for name, arguments in pairs], pa.string())
    turns["calls"] = _around(turns["calls"], calls)
    return _around(lists, turns)


def _kind(name: str, arguments: str) -> str:
    return call_kind(name, json.loads(arguments)).value


def _fields(structs: Any) -> dict[str, Any]:
    return {each.name: structs.field(each.name) for each in structs.type}


def _around(lists: Any, fields: dict[str, Any]) -> pa.Array:
    """The lists with other structs in them, which have these fields."""
    return type(lists).from_arrays(lists.offsets, pa.StructArray.from_arrays(list(fields.values()), names=list(fields)))


def _turns(lists: Any) -> pa.Array:
    """The same lists around the same turns, whose edits have other names."""
    import pyarrow.compute as pc  # slow to import, and needed by old stores alone

    fields = _fields(lists.values)
    edits = fields["edit"]
    parts = _renamed(_fields(edits), EDIT)
    for old, new in MODES.items():
        parts["mode"] = pc.if_else(pc.equal(parts["mode"], old), new, parts["mode"])
    fields["edit"] = pa.StructArray.from_arrays(list(parts.values()), names=list(parts), mask=edits.is_null())
    return _around(lists, fields)

"""Trajectories to columns: a batch of values to one Arrow table.

No Python runs per token. Arrays are joined with one `concatenate` a column, and the lists around them are made from
their lengths.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from cleaner_rl.tools import ToolCall, ToolResult
from cleaner_rl.trajectory.spans import Scores, TextSpan, TokenSpan
from cleaner_rl.trajectory.store.errors import StoreError
from cleaner_rl.trajectory.store.schema import (
    CALL,
    EDIT,
    EXCEPTION,
    REPLACED,
    RESULT,
    SCHEMA,
    SCHEMA_VERSION,
    SPAN,
    TURN,
)
from cleaner_rl.trajectory.trajectory import AnyTrajectory
from cleaner_rl.trajectory.turns import Turn

AnyTurn = Turn[TextSpan] | Turn[TokenSpan]
UNSTORABLE = (TypeError, ValueError, OverflowError, RecursionError)
"""What Arrow and JSON raise for values that they can't hold."""
_encoder = json.JSONEncoder()


def table_of(trajectories: Sequence[AnyTrajectory]) -> pa.Table:
    """One row a trajectory, as `schema` says."""
    try:
        return _table_of(trajectories)
    except UNSTORABLE:
        for trajectory in trajectories:  # find out which one it is
            try:
                _table_of([trajectory])
            except UNSTORABLE as error:
                raise unstorable(trajectory, error) from error
        raise


def unstorable(trajectory: AnyTrajectory, error: Exception) -> StoreError:
    """A trajectory that no store can hold, and why."""
    advice = "`extra` and arguments must be JSON values that aren't nested too deeply, numbers must fit in 64 bits"
    if isinstance(error, UnicodeEncodeError):
        advice = "a lone surrogate is no Unicode; replace it, as by text.encode(errors='replace').decode()"
    return StoreError(f"{trajectory.key} can't be stored: {error}; {advice}")


def to_json(value: Mapping[str, Any]) -> str:
    """A mapping as JSON in a string."""
    return _encoder.encode(dict(value)) if value else "{}"


def flattened(turns: Iterable[AnyTurn]) -> tuple[list[AnyTurn], list[int]]:
    """A trajectory's turns, then those under edits; and for each of the latter the number of the turn it is under."""
    numbered, under = list(turns), []
    for number, turn in enumerate(numbered):  # which grows while it is walked
        if turn.edit is not None:
            numbered += turn.edit.original
            under += [number] * len(turn.edit.original)
    return numbered, under


def _table_of(trajectories: Sequence[AnyTrajectory]) -> pa.Table:
    keys = [trajectory.key for trajectory in trajectories]
    history: list[AnyTurn] = []
    replaced: list[AnyTurn] = []
    under: list[int] = []
    counts = []
    for trajectory in trajectories:
        turns, turns_under = flattened(trajectory.turns)
        history += trajectory.turns
        replaced += turns[len(trajectory.turns) :]
        under += turns_under
        counts.append(len(turns_under))
    columns = [
        pa.array([SCHEMA_VERSION] * len(keys), pa.int32()),
        pa.array([key.run for key in keys], pa.string()),
        pa.array([key.step for key in keys], pa.int64()),
        pa.array([key.task for key in keys], pa.string()),
        pa.array([key.rollout for key in keys], pa.int64()),
        pa.array([trajectory.reward for trajectory in trajectories], pa.float64()),
        pa.array([trajectory.success for trajectory in trajectories], pa.bool_()),
        pa.array([trajectory.ending for trajectory in trajectories], pa.string()),
        pa.array([to_json(trajectory.extra) for trajectory in trajectories], pa.string()),
        _spans([trajectory.prompt for trajectory in trajectories]),
        _lists(
            [len(trajectory.turns) for trajectory in trajectories],
            pa.StructArray.from_arrays(_turns(history), fields=list(TURN)),
        ),
        _lists(
            counts,
            pa.StructArray.from_arrays([*_turns(replaced), pa.array(under, pa.int32())], fields=list(REPLACED)),
        ),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _turns(turns: Sequence[AnyTurn]) -> list[pa.Array]:
    edits = [turn.edit for turn in turns]
    return [
        _spans([turn.reasoning for turn in turns]),
        _spans([turn.action for turn in turns]),
        _spans([turn.observation for turn in turns]),
        _lists([len(turn.calls) for turn in turns], _calls([call for turn in turns for call in turn.calls])),
        _lists([len(turn.results) for turn in turns], _results([result for turn in turns for result in turn.results])),
        pa.array([turn.attempt for turn in turns], pa.int32()),
        pa.array(
            [
                edit and (edit.mode, edit.granularity, edit.similarity, edit.measure, edit.refusal, list(edit.stale))
                for edit in edits
            ],
            EDIT,
        ),
    ]


def _spans(spans: Sequence[TextSpan | TokenSpan | None]) -> pa.Array:
    tokens = [span if isinstance(span, TokenSpan) else None for span in spans]
    arrays = [
        pa.array([None if span is None else span.text for span in spans], pa.string()),
        _arrays([None if span is None else span.ids for span in tokens], pa.int32()),
    ]
    arrays += _scores([None if span is None else span.sampled for span in tokens])
    arrays += _scores([None if span is None else span.rescored for span in tokens])
    return pa.StructArray.from_arrays(arrays, fields=list(SPAN), mask=_missing(spans))


def _scores(scores: Sequence[Scores | None]) -> list[pa.Array]:
    return [
        _arrays([each and each.logprobs for each in scores], pa.float32()),
        pa.array([each and each.version for each in scores], pa.int64()),
    ]


def _arrays(arrays: Sequence[Any], kind: pa.DataType) -> pa.Array:
    present = [array for array in arrays if array is not None]
    values = np.concatenate(present) if present else np.empty(0, kind.to_pandas_dtype())
    lengths = [0 if array is None else len(array) for array in arrays]
    return _lists(lengths, pa.array(values, kind), _missing(arrays))


def _calls(calls: Sequence[ToolCall]) -> pa.Array:
    arrays = [
        pa.array([call.name for call in calls], pa.string()),
        pa.array([to_json(call.arguments) for call in calls], pa.string()),
        pa.array([call.code for call in calls], pa.string()),
        pa.array([call.start for call in calls], pa.int64()),
        pa.array([call.end for call in calls], pa.int64()),
        pa.array([call.problem for call in calls], pa.string()),
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(CALL))


def _results(results: Sequence[ToolResult]) -> pa.Array:
    exceptions = [result.exception for result in results]
    arrays = [
        pa.array([result.status for result in results], pa.string()),
        pa.array([result.output for result in results], pa.string()),
        pa.array([result.stderr for result in results], pa.string()),
        pa.array([each and (each.type, each.message, each.line, each.traceback) for each in exceptions], EXCEPTION),
        pa.array([result.explanation for result in results], pa.string()),
        pa.array([result.output_length for result in results], pa.int64()),
        pa.array([result.seconds for result in results], pa.float64()),
        pa.array([to_json(result.versions) for result in results], pa.string()),
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(RESULT))


def _lists(lengths: Sequence[int], values: pa.Array, mask: pa.Array | None = None) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=mask)


def _missing(values: Sequence[object]) -> pa.Array:
    return pa.array([value is None for value in values], pa.bool_())

"""The stored record: version 3 of the schema, declared once. Columns, rows and JSONL lines all follow from it.

A row is a trajectory. `turns` is its history. Edits nest and Arrow's types can't, so the column `replaced` holds all
the turns that edits replaced, flat: number a trajectory's turns 0 to n-1 and its replaced turns from n on, and
`under` is the number of the turn whose edit holds this one, in the order of `Edit.original`. A turn always comes after
the one it is under. JSONL nests, so an edit has its `original` there and `replaced` is left out.

A text trajectory has no `ids` (null) in any span. `sampled` and `rescored` are null where there are no log-probs.
`arguments`, `versions` and `info` are JSON in a string, because their keys differ from row to row.

`run`, `phase` and `step` are in the path and in the file. DuckDB takes that well; pyarrow and pandas must be told not
to look at the path (`partitioning=None`), because they give its values other types than the columns have.

A change of the schema raises the version. Files say their version in their metadata, and each row says it in a column,
for tools that copy rows and drop the metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from cleaner_rl.tools import CallKind, ExceptionInfo, Status, ToolCall, ToolResult
from cleaner_rl.trajectory.info import RolloutInfo
from cleaner_rl.trajectory.spans import Floats, Ids, Scores, TextSpan, TokenSpan
from cleaner_rl.trajectory.store.codecs import Arrays, Choice, Field, Json, Lists, Mappings, Number, Only, Plain, Struct
from cleaner_rl.trajectory.store.errors import StoreError
from cleaner_rl.trajectory.trajectory import AnyTrajectory, Key, Phase, StopReason, Trajectory
from cleaner_rl.trajectory.turns import Edit, RepairKind, RepairMode, Turn

SCHEMA_VERSION = 3
VERSION_KEY = b"cleaner_rl.schema_version"

TEXT, YES_NO, NUMBER = Plain(pa.string()), Plain(pa.bool_()), Number(pa.float64())
INT, SMALL = Plain(pa.int64()), Plain(pa.int32())
MAPPING = Mappings()
LOGPROBS = Arrays(pa.float32(), np.float32)


def _span(
    text: str,
    ids: Ids | None,
    sampled: Floats | None,
    sampled_version: int | None,
    rescored: Floats | None,
    rescored_version: int | None,
) -> TextSpan | TokenSpan:
    if ids is None:
        return TextSpan(text)
    return TokenSpan(
        text,
        ids,
        None if sampled is None else Scores(sampled, sampled_version),
        None if rescored is None else Scores(rescored, rescored_version),
    )


def _ids(span: TextSpan | TokenSpan) -> Ids | None:
    return span.ids if isinstance(span, TokenSpan) else None


def _sampled(span: TextSpan | TokenSpan) -> Floats | None:
    return None if not isinstance(span, TokenSpan) or span.sampled is None else span.sampled.logprobs


def _sampled_version(span: TextSpan | TokenSpan) -> int | None:
    return None if not isinstance(span, TokenSpan) or span.sampled is None else span.sampled.version


def _rescored(span: TextSpan | TokenSpan) -> Floats | None:
    return None if not isinstance(span, TokenSpan) or span.rescored is None else span.rescored.logprobs


def _rescored_version(span: TextSpan | TokenSpan) -> int | None:
    return None if not isinstance(span, TokenSpan) or span.rescored is None else span.rescored.version


SPAN = Struct(
    _span,
    [
        Field("text", TEXT),
        Field("ids", Arrays(pa.int32(), np.int32), _ids),
        Field("sampled", LOGPROBS, _sampled),
        Field("sampled_version", INT, _sampled_version),
        Field("rescored", LOGPROBS, _rescored),
        Field("rescored_version", INT, _rescored_version),
    ],
)
CALL = Struct(
    ToolCall,
    [
        Field("name", TEXT),
        Field("arguments", MAPPING),
        Field("code", TEXT),
        Field("start", INT),
        Field("end", INT),
        Field("problem", TEXT),
        Field("kind", Choice(CallKind)),
    ],
)
EXCEPTION = Struct(
    ExceptionInfo, [Field("type", TEXT), Field("message", TEXT), Field("line", INT), Field("traceback", TEXT)]
)
RESULT = Struct(
    ToolResult,
    [
        Field("status", Choice(Status)),
        Field("output", TEXT),
        Field("stderr", TEXT),
        Field("exception", EXCEPTION),
        Field("explanation", TEXT),
        Field("output_length", INT),
        Field("seconds", NUMBER),
        Field("versions", MAPPING),
    ],
)


class _Original:
    """The turns that an edit holds, as JSON nests them; of a column they come from `replaced`."""

    type = pa.null()

    def column(self, values: Sequence[Any]) -> pa.Array:
        """There is none."""
        raise NotImplementedError

    def values(self, column: pa.Array) -> Sequence[Any]:
        """There is none."""
        raise NotImplementedError

    def to_json(self, value: Any) -> Json:
        """To any depth."""
        return [TURN.to_json(turn) for turn in value]

    def from_json(self, value: Json) -> Any:
        """The opposite of `to_json`."""
        return tuple(TURN.from_json(turn) for turn in value)


class _Edits(Struct):
    """Edits, also those of stores that were written before an edit said who had accepted it."""

    def from_json(self, value: Json) -> Any:
        """The opposite of `to_json`."""
        return None if value is None else super().from_json({"accepted_by": "", **value})


def _edit(*fields: Any) -> Edit[Any]:
    made: Edit[Any] = Edit(*fields)
    return made if made.accepted_by else replace(made, accepted_by="")  # null in such a store


EDIT = _Edits(
    _edit,
    [
        Field("mode", Choice(RepairMode)),
        Field("kind", Choice(RepairKind)),
        Field("original", _Original(), only=Only.JSON),
        Field("similarity", NUMBER),
        Field("measure", TEXT),
        Field("refusal", TEXT),
        Field("stale", Lists(TEXT)),
        Field("accepted_by", TEXT),
    ],
)
TURN = Struct(
    Turn,
    [
        Field("reasoning", SPAN),
        Field("action", SPAN),
        Field("observation", SPAN),
        Field("calls", Lists(CALL)),
        Field("results", Lists(RESULT)),
        Field("attempt", SMALL),
        Field("edit", EDIT),
    ],
)


class _Replaced(NamedTuple):
    turn: Turn[Any]
    under: int


def _replaced(*fields: Any) -> _Replaced:
    return _Replaced(Turn(*fields[:-1]), fields[-1])


def _all_replaced(trajectory: AnyTrajectory) -> list[_Replaced]:
    """The turns under edits, each with the number of the turn that it is under."""
    numbered: list[Turn[Any]] = list(trajectory.turns)
    found = []
    for number, turn in enumerate(numbered):  # which grows while it is walked
        if turn.edit is not None:
            numbered += turn.edit.original
            found += [_Replaced(each, number) for each in turn.edit.original]
    return found


def _nested(turns: Sequence[Turn[Any]], replaced: Sequence[_Replaced]) -> tuple[Turn[Any], ...]:
    """The history with what its edits hold; the opposite of `_all_replaced`."""
    numbered = [*turns, *(each.turn for each in replaced)]
    original: dict[int, list[Turn[Any]]] = {}
    # From the last to the first, because a turn comes after the one it is under: so it is whole when that one takes it.
    for number in reversed(range(len(numbered))):
        turn = numbered[number]
        if number in original and turn.edit is not None:
            turn = replace(turn, edit=replace(turn.edit, original=tuple(reversed(original[number]))))
        if number < len(turns):
            numbered[number] = turn
        else:
            original.setdefault(replaced[number - len(turns)].under, []).append(turn)
    return tuple(numbered[: len(turns)])


def _trajectory(
    _version: int,
    run: str,
    phase: Phase,
    step: int,
    task: str,
    rollout: int,
    reward: float | None,
    success: bool | None,
    stop_reason: StopReason | None,
    info: RolloutInfo,
    prompt: Any,
    turns: tuple[Turn[Any], ...],
    replaced: Sequence[_Replaced],
) -> AnyTrajectory:
    own = _nested(turns, replaced) if replaced else turns
    return Trajectory(prompt, own, Key(run, step, task, rollout, phase), reward, success, stop_reason, info)


REPLACED = Struct(
    _replaced,
    [*(Field(field.name, field.codec, f"turn.{field.name}") for field in TURN.fields), Field("under", SMALL)],
)
TRAJECTORY = Struct(
    _trajectory,
    [
        Field("schema_version", SMALL, lambda _: SCHEMA_VERSION),
        Field("run", TEXT, "key.run"),
        Field("phase", Choice(Phase), "key.phase"),
        Field("step", INT, "key.step"),
        Field("task", TEXT, "key.task"),
        Field("rollout", INT, "key.rollout"),
        Field("reward", NUMBER),
        Field("success", YES_NO),
        Field("stop_reason", Choice(StopReason)),
        Field("info", Mappings(RolloutInfo.to_json, RolloutInfo.from_json)),
        Field("prompt", SPAN),
        Field("turns", Lists(TURN)),
        Field("replaced", Lists(REPLACED), _all_replaced, only=Only.ARROW),
    ],
)
SCHEMA = pa.schema(list(TRAJECTORY.type), metadata={VERSION_KEY: str(SCHEMA_VERSION).encode()})
UNSTORABLE = (TypeError, ValueError, OverflowError, RecursionError)
"""What Arrow and JSON raise for values that they can't hold."""


def table_of(trajectories: Sequence[AnyTrajectory]) -> pa.Table:
    """One row for each trajectory."""
    try:
        return _table_of(trajectories)
    except UNSTORABLE:
        for trajectory in trajectories:  # find out which one it is
            try:
                _table_of([trajectory])
            except UNSTORABLE as error:
                raise unstorable(trajectory, error) from error
        raise


def _table_of(trajectories: Sequence[AnyTrajectory]) -> pa.Table:
    return pa.Table.from_arrays(TRAJECTORY.arrays(trajectories), schema=SCHEMA)


def trajectories_of(batch: pa.RecordBatch) -> Iterable[AnyTrajectory]:
    """The trajectories of a batch that has the schema's columns.

    Token ids and log-probs are read-only views of the columns' memory: nothing is copied per token. So a trajectory
    that is kept keeps its batch (some hundred rows) in memory; copy the arrays of the few that must outlive the many.
    """
    columns = {name: batch.column(name) for name in SCHEMA.names}
    return (_trajectory(*row) for row in TRAJECTORY.rows(columns, len(batch)))


def unstorable(trajectory: AnyTrajectory, error: Exception) -> StoreError:
    """A trajectory that no store can hold, and why."""
    advice = "`info` and arguments must be JSON values that aren't nested too deeply, numbers must fit in 64 bits"
    if isinstance(error, UnicodeEncodeError):
        advice = "a lone surrogate is not Unicode; replace it, as by text.encode(errors='replace').decode()"
    return StoreError(f"{trajectory.key} can't be stored: {error}; {advice}")


def check_version(version: object, where: Path) -> None:
    """Refuse a version that this release doesn't read."""
    if not isinstance(version, int):
        raise StoreError(f"{where} has no schema version, so it isn't ours; import logs of other tools with an adapter")
    if version != SCHEMA_VERSION:
        advice = "upgrade cleaner-rl to read it" if version > SCHEMA_VERSION else "no release wrote it; make it again"
        raise StoreError(f"{where} has schema version {version}, and this release reads {SCHEMA_VERSION}: {advice}")

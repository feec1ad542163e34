"""JSONL: one object a line, with the content of a Parquet row.

The fields have the names of `schema`'s columns. Only edits differ: their `original` holds turns as they are, to any
depth. A number that JSON can't spell is the string "NaN", "Infinity" or "-Infinity"; every other float comes back bit
for bit, and every NaN as the one that numpy calls `nan`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from math import isfinite
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from cleaner_rl.tools import ExceptionInfo, Status, ToolCall, ToolResult
from cleaner_rl.trajectory.spans import Scores, TextSpan, TokenSpan
from cleaner_rl.trajectory.store.columns import UNSTORABLE, AnyTurn, to_json, unstorable
from cleaner_rl.trajectory.store.errors import StoreError
from cleaner_rl.trajectory.store.files import publish, unfinished
from cleaner_rl.trajectory.store.rows import from_json
from cleaner_rl.trajectory.store.schema import SCHEMA_VERSION, check_version
from cleaner_rl.trajectory.trajectory import AnyTrajectory, Ending, Key, Trajectory
from cleaner_rl.trajectory.turns import Edit, Granularity, Mode, Turn

Record = dict[str, Any]


class JsonlWriter:
    """Writes one new file; a context manager, like `ParquetWriter`. If the block raises, there is no file."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        if self._path.exists():
            raise StoreError(f"{path} exists, and a file of a store is never written to again: choose a new name")
        self._temporary = unfinished(self._path.parent)
        self._file = self._temporary.open("w", encoding="utf-8")

    def write(self, trajectory: AnyTrajectory) -> None:
        """Add one trajectory."""
        try:
            line = json.dumps(_trajectory(trajectory), ensure_ascii=False, allow_nan=False)
            self._file.write(line + "\n")
        except UNSTORABLE as error:
            raise unstorable(trajectory, error) from error

    def __enter__(self) -> JsonlWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()
        if kind is None:
            publish(self._temporary, self._path)
        else:
            self._temporary.unlink()


def read_jsonl(path: Path) -> Iterator[AnyTrajectory]:
    """The lines of one file."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            yield _read_line(line, number, path)


def read_jsonl_row(path: Path, row: int) -> AnyTrajectory | None:
    """One line of one file, counted from 0; None if there is no such line."""
    with path.open("rb") as file:
        line = next(islice(file, row, None), None)
    return None if line is None else _read_line(line, row + 1, path)


def _read_line(line: bytes, number: int, path: Path) -> AnyTrajectory:
    try:
        record = json.loads(line)
        check_version(record.get("schema_version") if isinstance(record, dict) else None, path)
        return _read_trajectory(record)
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(
            f"line {number} of {path} can't be read: {error!r}; "
            "restore the file from a copy, or delete it to read the rest"
        ) from error


def _trajectory(trajectory: AnyTrajectory) -> Record:
    key = trajectory.key
    return {
        "schema_version": SCHEMA_VERSION,
        "run": key.run,
        "step": key.step,
        "task": key.task,
        "rollout": key.rollout,
        "reward": _number(trajectory.reward),
        "success": trajectory.success,
        "ending": trajectory.ending,
        "extra": to_json(trajectory.extra),
        "prompt": _span(trajectory.prompt),
        "turns": [_turn(turn) for turn in trajectory.turns],
    }


def _turn(turn: AnyTurn) -> Record:
    edit = turn.edit
    return {
        "reasoning": _span(turn.reasoning),
        "action": _span(turn.action),
        "observation": _span(turn.observation),
        "calls": [
            {
                "name": call.name,
                "arguments": to_json(call.arguments),
                "code": call.code,
                "start": call.start,
                "end": call.end,
                "problem": call.problem,
            }
            for call in turn.calls
        ],
        "results": [_result(result) for result in turn.results],
        "attempt": turn.attempt,
        "edit": edit
        and {
            "mode": edit.mode,
            "granularity": edit.granularity,
            "similarity": _number(edit.similarity),
            "measure": edit.measure,
            "refusal": edit.refusal,
            "stale": list(edit.stale),
            "original": [_turn(each) for each in edit.original],
        },
    }


def _result(result: ToolResult) -> Record:
    error = result.exception
    return {
        "status": result.status,
        "output": result.output,
        "stderr": result.stderr,
        "exception": error
        and {"type": error.type, "message": error.message, "line": error.line, "traceback": error.traceback},
        "explanation": result.explanation,
        "output_length": result.output_length,
        "seconds": _number(result.seconds),
        "versions": to_json(result.versions),
    }


def _span(span: TextSpan | TokenSpan | None) -> Record | None:
    if span is None:
        return None
    ids, sampled, rescored = None, None, None
    if isinstance(span, TokenSpan):
        ids, sampled, rescored = span.ids.tolist(), span.sampled, span.rescored
    return {
        "text": span.text,
        "ids": ids,
        "sampled": sampled and _numbers(sampled),
        "sampled_version": sampled and sampled.version,
        "rescored": rescored and _numbers(rescored),
        "rescored_version": rescored and rescored.version,
    }


def _numbers(scores: Scores) -> list[float | str | None]:
    values = scores.logprobs.tolist()
    return values if np.isfinite(scores.logprobs).all() else [_number(value) for value in values]


def _number(value: float | None) -> float | str | None:
    if value is None or isfinite(value):
        return value
    return "NaN" if value != value else ("Infinity" if value > 0 else "-Infinity")


def _read_trajectory(record: Record) -> AnyTrajectory:
    turns = tuple(_read_turn(turn) for turn in record["turns"])
    key = Key(record["run"], record["step"], record["task"], record["rollout"])
    ending = record["ending"] and Ending(record["ending"])
    reward = _read_number(record["reward"])
    prompt: Any = _read_span(record["prompt"])
    return Trajectory(prompt, turns, key, reward, record["success"], ending, from_json(record["extra"]))


def _read_turn(record: Record) -> Turn[Any]:
    edit = record["edit"]
    return Turn(
        _read_span(record["reasoning"]),
        _read_span(record["action"]),
        _read_span(record["observation"]),
        tuple(ToolCall(**{**call, "arguments": from_json(call["arguments"])}) for call in record["calls"]),
        tuple(_read_result(result) for result in record["results"]),
        record["attempt"],
        edit
        and Edit(
            Mode(edit["mode"]),
            Granularity(edit["granularity"]),
            tuple(_read_turn(turn) for turn in edit["original"]),
            _read_number(edit["similarity"]),
            edit["measure"],
            edit["refusal"],
            tuple(edit["stale"]),
        ),
    )


def _read_result(record: Record) -> ToolResult:
    return ToolResult(
        **{
            **record,
            "status": Status(record["status"]),
            "exception": record["exception"] and ExceptionInfo(**record["exception"]),
            "seconds": _read_number(record["seconds"]),
            "versions": from_json(record["versions"]),
        }
    )


def _read_span(record: Record | None) -> Any:
    if record is None:
        return None
    if record["ids"] is None:
        return TextSpan(record["text"])
    sampled, rescored = _read_scores(record, "sampled"), _read_scores(record, "rescored")
    return TokenSpan(record["text"], _array(record["ids"], np.int32), sampled, rescored)


def _read_scores(record: Record, name: str) -> Scores | None:
    values = record[name]
    return None if values is None else Scores(_array(values, np.float32), record[f"{name}_version"])


def _array(values: list[Any], kind: type[np.generic]) -> Any:
    array = np.array(values, kind)
    array.setflags(write=False)
    return array


def _read_number(value: float | str | None) -> float | None:
    return float(value) if isinstance(value, str) else value

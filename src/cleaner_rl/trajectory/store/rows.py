"""Columns to trajectories: Arrow rows back to values.

Token ids and log-probs are read-only views of the columns' memory: nothing is copied per token. So a trajectory that is
kept keeps its batch (some hundred rows) in memory; copy the arrays of the few that must outlive the many.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pyarrow as pa

from cleaner_rl.tools import ExceptionInfo, Status, ToolCall, ToolResult
from cleaner_rl.trajectory.spans import Scores, TextSpan, TokenSpan
from cleaner_rl.trajectory.trajectory import AnyTrajectory, Ending, Key, Trajectory
from cleaner_rl.trajectory.turns import Edit, Granularity, Mode, Turn

# A look-up in a dict takes a fraction of the time of the enum's own call.
STATUSES = {status.value: status for status in Status}
_decoder = json.JSONDecoder()


def trajectories_of(batch: pa.RecordBatch) -> Iterator[AnyTrajectory]:
    """The batch's rows, of the columns that `schema` says."""
    spans, history = _lists(batch.column("turns"))
    replaced_spans, replaced = _lists(batch.column("replaced"))
    turns, replaced_turns = _turns(history), _turns(replaced)
    under = replaced.field("under").to_pylist()
    names = ("run", "step", "task", "rollout", "reward", "success", "ending", "extra")
    rows = zip(*(batch.column(name).to_pylist() for name in names), strict=True)
    prompts = _spans(batch.column("prompt"))
    for row, prompt, (start, end), (first, last) in zip(rows, prompts, spans, replaced_spans, strict=True):
        run, step, task, rollout, reward, success, ending, extra = row
        own = turns[start:end]
        if first != last:
            own = nested(own, replaced_turns[first:last], under[first:last])
        key = Key(run, step, task, rollout)
        yield Trajectory(prompt, tuple(own), key, reward, success, ending and Ending(ending), from_json(extra))


def from_json(text: str) -> Mapping[str, Any]:
    """A mapping from JSON in a string."""
    value: dict[str, Any] = {} if text == "{}" else _decoder.raw_decode(text)[0]
    return value


def nested(turns: Sequence[Turn[Any]], replaced: Sequence[Turn[Any]], under: Sequence[int]) -> list[Turn[Any]]:
    """The history with what its edits hold; the opposite of `columns.flattened`."""
    numbered = [*turns, *replaced]
    original: dict[int, list[Turn[Any]]] = {}
    # From the last to the first, because a turn comes after the one it is under: so it is whole when that one takes it.
    for number in reversed(range(len(numbered))):
        turn = numbered[number]
        if number in original and turn.edit is not None:
            turn = replace(turn, edit=replace(turn.edit, original=tuple(reversed(original[number]))))
        if number < len(turns):
            numbered[number] = turn
        else:
            original.setdefault(under[number - len(turns)], []).append(turn)
    return numbered[: len(turns)]


def _turns(turns: pa.StructArray) -> list[Turn[Any]]:
    call_bounds, calls = _lists(turns.field("calls"))
    result_bounds, results = _lists(turns.field("results"))
    all_calls, all_results = _calls(calls), _results(results)
    return [
        Turn(
            reasoning,
            action,
            observation,
            tuple(all_calls[call:call_end]),
            tuple(all_results[result:result_end]),
            attempt,
            edit,
        )
        for reasoning, action, observation, (call, call_end), (result, result_end), attempt, edit in zip(
            _spans(turns.field("reasoning")),
            _spans(turns.field("action")),
            _spans(turns.field("observation")),
            call_bounds,
            result_bounds,
            turns.field("attempt").to_pylist(),
            _edits(turns.field("edit")),
            strict=True,
        )
    ]


def _edits(edits: pa.StructArray) -> list[Edit[Any] | None]:
    """Without what they hold."""
    return [
        edit
        and Edit(
            Mode(edit["mode"]),
            Granularity(edit["granularity"]),
            (),
            edit["similarity"],
            edit["measure"],
            edit["refusal"],
            tuple(edit["stale"]),
        )
        for edit in _structs(edits)
    ]


def _spans(spans: pa.StructArray) -> list[Any]:
    texts = spans.field("text").to_pylist()
    ids = _arrays(spans.field("ids"))
    sampled = _scores(spans.field("sampled"), spans.field("sampled_version"))
    rescored = _scores(spans.field("rescored"), spans.field("rescored_version"))
    made: list[Any] = [
        TextSpan(text) if ids_T is None else TokenSpan(text, ids_T, before, after)
        for text, ids_T, before, after in zip(texts, ids, sampled, rescored, strict=True)
    ]
    if spans.null_count:
        return [span if there else None for span, there in zip(made, spans.is_valid().to_pylist(), strict=True)]
    return made


def _scores(logprobs: pa.ListArray, versions: pa.Array) -> list[Scores | None]:
    if logprobs.null_count == len(logprobs):
        return [None] * len(logprobs)
    return [
        None if array is None else Scores(array, version)
        for array, version in zip(_arrays(logprobs), versions.to_pylist(), strict=True)
    ]


def _arrays(lists: pa.ListArray) -> list[Any]:
    bounds, values = _lists(lists)
    array = values.to_numpy(zero_copy_only=True)
    slices = [array[start:end] for start, end in bounds]
    if lists.null_count:
        return [each if there else None for each, there in zip(slices, lists.is_valid().to_pylist(), strict=True)]
    return slices


def _calls(calls: pa.StructArray) -> list[ToolCall]:
    name, arguments, code, start, end, problem = (
        calls.field(each).to_pylist() for each in ("name", "arguments", "code", "start", "end", "problem")
    )
    return list(map(ToolCall, name, map(from_json, arguments), code, start, end, problem))


def _results(results: pa.StructArray) -> list[ToolResult]:
    status, output, stderr, explanation, output_length, seconds, versions = (
        results.field(each).to_pylist()
        for each in ("status", "output", "stderr", "explanation", "output_length", "seconds", "versions")
    )
    read_versions = {text: from_json(text) for text in set(versions)}  # of which there are few
    exceptions = [each and ExceptionInfo(**each) for each in _structs(results.field("exception"))]
    return list(
        map(
            ToolResult,
            map(STATUSES.__getitem__, status),
            output,
            stderr,
            exceptions,
            explanation,
            output_length,
            seconds,
            map(read_versions.__getitem__, versions),
        )
    )


def _structs(structs: pa.StructArray) -> list[Any]:
    """As dicts; only for what is rare, because that is slow."""
    return [None] * len(structs) if structs.null_count == len(structs) else structs.to_pylist()


def _lists(lists: pa.ListArray) -> tuple[list[tuple[int, int]], Any]:
    """Where each list begins and ends in the values, and the values."""
    offsets = lists.offsets.to_numpy()
    start, end = int(offsets[0]), int(offsets[-1])
    # A slice of a longer array shows the values of all of it.
    return list(pairwise((offsets - start).tolist())), lists.values.slice(start, end - start)

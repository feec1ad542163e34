"""Repairs a logged trajectory in hindsight, by the same function as in training, within two borders.

A chain of failures and its correction never reaches across

- **somebody's words**: if a person or a system speaks between failure and correction, a repair would take those words
  out, and what comes after may answer them;
- **another tool**: a call of a different tool after a failure is a change of plan more often than a correction. (A
  call that could not be read may have been meant for any tool.)

It also counts calls that were made before with the same result, and failures that the model gave up on."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise, takewhile
from typing import Any, Generic

from cleaner_rl.logs.formats.base import log_of
from cleaner_rl.logs.warrant import Warrant, accepted_by
from cleaner_rl.purify import LeftAlone, Reason, Refusal, RepairConfig, hindsight
from cleaner_rl.tools import CallKind
from cleaner_rl.trajectory import (
    RepairMode,
    S,
    Trajectory,
    Turn,
    is_undone,
    reviewed,
    without_hindsight,
    without_rescoring,
)

_canonical = json.JSONEncoder(default=repr, sort_keys=True).encode


@dataclass(frozen=True, slots=True)
class PurifiedLog(Generic[S]):
    """A purified trajectory, and the failed turns that were left alone in it."""

    trajectory: Trajectory[S]
    left_alone: tuple[LeftAlone, ...]
    unreplayed: PurifiedLog[S] | None = None
    """What is warranted if no replay can prove the repairs; None if that is the same."""

    def undone(self, reason: Reason) -> PurifiedLog[S]:
        """Return the trajectory without its repairs, with this reason for the failures that had been repaired."""
        raw = without_hindsight(self.trajectory)
        reasons: dict[int, StrEnum] = {index: reason for index, turn in enumerate(raw.turns) if turn.failed}
        left = {each.turn: each.reason for each in self.left_alone}
        position = 0
        for index, turn in enumerate(self.trajectory.turns):
            if index in left:
                reasons[position] = left[index]
            by_hindsight = turn.edit is not None and turn.edit.mode is RepairMode.HINDSIGHT
            position += len(turn.edit.original) if turn.edit is not None and by_hindsight else 1
        return PurifiedLog(raw, tuple(LeftAlone(index, why) for index, why in sorted(reasons.items())))

    def without(self, wrong: Collection[str]) -> PurifiedLog[S]:
        """Return the trajectory without what a review found wrong (see `trajectory.reviewed`)."""
        after = reviewed(self.trajectory, wrong)
        if after is self.trajectory:
            return self
        left = {each.turn: each.reason for each in self.left_alone}
        reasons: dict[int, StrEnum] = {}
        position = 0
        for index, turn in enumerate(self.trajectory.turns):
            original = turn.edit.original if turn.edit is not None and is_undone(turn, wrong) else ()
            if index in left:
                reasons[position] = left[index]
            reasons |= {position + at: Reason.REVIEWED for at, each in enumerate(original) if each.failed}
            position += len(original) or 1
        return PurifiedLog(after, tuple(LeftAlone(index, why) for index, why in sorted(reasons.items())))


def purify_log(
    trajectory: Trajectory[S], config: RepairConfig, *, replayed: bool = False, refusal: Refusal | None = None
) -> PurifiedLog[S]:
    """Repair every failed turn that the model itself corrected, within the borders above, where that is warranted.

    `replayed` says whether the caller replays Python programs (see `warrant.Warrant`). `refusal` is asked before the
    warrant: it can only refuse more.
    """
    bare = without_rescoring(trajectory)
    warrant = Warrant(bare, config, replayed=replayed)

    def refused(failures: range, failed: int) -> StrEnum | None:
        return (None if refusal is None else refusal(failures, failed)) or warrant(failures, failed)

    purified = hindsight(bare, config, refused, frozenset(_borders(trajectory)))
    turns = _with_scores(purified.trajectory.turns, trajectory.turns)
    before = {id(_replaced(turn)) for turn in trajectory.turns}
    named = (turn if id(_replaced(turn)) in before else _accepted(turn) for turn in turns)
    return PurifiedLog(replace(trajectory, turns=tuple(named)), purified.left_alone)


def _accepted(turn: Turn[S]) -> Turn[S]:
    """Return a turn whose edit says by what it was accepted."""
    edit = turn.edit
    if edit is None:
        return turn
    shown = {accepted_by(each) for each in edit.original if each.failed}
    return replace(turn, edit=replace(edit, accepted_by=max(shown, default="")))  # "replay" where one of them needs it


def purify_to_replay(trajectory: Trajectory[S], config: RepairConfig) -> PurifiedLog[S]:
    """Repair a trajectory that is replayed before it is used; `unreplayed` is for the case that it can't be.

    A replay shows what a failed Python program left behind, so more repairs can be tried.
    """
    unreplayed = purify_log(trajectory, config)
    if any(call.kind is not CallKind.PYTHON for turn in trajectory.turns for call in turn.calls):
        return unreplayed  # no sandbox runs it
    tried = purify_log(trajectory, config, replayed=True)
    same = len(tried.trajectory.turns) == len(unreplayed.trajectory.turns)
    return unreplayed if same else replace(tried, unreplayed=unreplayed)


def repeated_calls(trajectory: Trajectory[Any]) -> int:
    """Count the turns whose calls were all made before in one turn, with the same results."""
    by_output: dict[tuple[str, ...], list[Turn[Any]]] = defaultdict(list)
    for turn in trajectory.turns:
        if turn.results:
            by_output[tuple(result.output for result in turn.results)].append(turn)
    # Nearly all outputs differ, and comparing all else takes far longer.
    return sum(len(turns) - len(set(map(_made, turns))) for turns in by_output.values() if len(turns) > 1)


def _made(turn: Turn[Any]) -> str:
    """Return the calls of a turn and their results as text that is the same for the same ones."""
    calls = [(call.name, call.arguments) for call in turn.calls]
    return _canonical([calls, [result.observed for result in turn.results]])


def abandoned(purified: PurifiedLog[Any]) -> int:
    """Count the chains of failures without a correction after which the model went on with something else."""
    failed = {each.turn for each in purified.left_alone}
    uncorrected = {each.turn for each in purified.left_alone if each.reason is Reason.UNCORRECTED}
    last = len(purified.trajectory.turns) - 1
    return sum(index < last and index + 1 not in failed for index in uncorrected)


def _with_scores(turns: Sequence[Turn[S]], before: Sequence[Turn[S]]) -> list[Turn[S]]:
    """Return the turns with the log-probs of earlier re-scorings up to the first new edit: nothing moved there."""
    same = takewhile(lambda pair: _replaced(pair[0]) is _replaced(pair[1]), zip(turns, before, strict=False))
    kept = [scored if scored.edit is turn.edit else replace(scored, edit=turn.edit) for turn, scored in same]
    return [*kept, *turns[len(kept) :]]


def _replaced(turn: Turn[S]) -> tuple[Turn[S], ...] | None:
    return None if turn.edit is None else turn.edit.original


def _borders(trajectory: Trajectory[S]) -> Iterator[int]:
    """Yield the turns after which somebody speaks or another tool is used."""
    spoken = set(log_of(trajectory).get("spoken", ()))
    raw = 0
    for index, (turn, following) in enumerate(pairwise(trajectory.turns)):
        raw += _sampled(turn)
        if raw - 1 in spoken or _turns_away(turn, following):
            yield index


def _sampled(turn: Turn[S]) -> int:
    """Return how many turns of the log a turn stands for."""
    return 1 if turn.edit is None else sum(map(_sampled, turn.edit.original))


def _turns_away(failed: Turn[S], following: Turn[S]) -> bool:
    """Return whether a turn after a failure uses other tools."""
    if not failed.failed or not following.calls or any(call.problem for call in failed.calls):
        return False
    return {call.name for call in failed.calls} != {call.name for call in following.calls}

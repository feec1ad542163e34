"""Repairs a logged trajectory in hindsight, by the same function as in training, within two borders.

A chain of failures and its correction never reaches across

- **somebody's words**: if a person or a system speaks between failure and correction, a repair would take those words
  out, and what comes after may answer them;
- **another tool**: a call of a different tool after a failure is a change of plan more often than a correction. (A
  call that could not be read may have been meant for any tool.)

It also counts calls that were made before with the same result, and failures that the model gave up on."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Generic

from cleaner_rl.logs.formats.base import log_of
from cleaner_rl.purify import LeftAlone, Leftovers, Reason, RepairConfig, hindsight, left_alone, note_stale
from cleaner_rl.trajectory import S, Trajectory, Turn, without_rescoring

_canonical = json.JSONEncoder(default=repr, sort_keys=True).encode


@dataclass(frozen=True, slots=True)
class Cleaned(Generic[S]):
    """A purified trajectory, and the failed turns that were left alone in it."""

    trajectory: Trajectory[S]
    left_alone: tuple[LeftAlone, ...]


def clean(trajectory: Trajectory[S], config: RepairConfig, leftovers: Leftovers = Leftovers.UNCHECKED) -> Cleaned[S]:
    """Repair every failed turn that the model itself corrected, within the borders above, where that is warranted.

    `leftovers` says whether the caller replays Python programs (see `purify.Leftovers`).
    """
    if not trajectory.usable:
        # Faults and dropped rollouts count for the whole, not for a stretch of it.
        return Cleaned(trajectory, left_alone(trajectory.turns, Reason.UNUSABLE))
    turns: list[Turn[S]] = []
    left: list[LeftAlone] = []
    raw = without_rescoring(trajectory).turns
    for stretch in _stretches(without_rescoring(trajectory)):
        raw = raw[len(stretch) :]
        purified = hindsight(replace(trajectory, turns=stretch), config, leftovers, later=raw)
        left += [replace(each, turn=each.turn + len(turns)) for each in purified.left_alone]
        turns += purified.trajectory.turns
    # Each stretch has noted what its own turns say of errors that are gone; those after it may, too.
    turns = note_stale(turns)
    return Cleaned(replace(trajectory, turns=tuple(_with_scores(turns, trajectory.turns))), tuple(left))


def repeated_calls(trajectory: Trajectory[Any]) -> int:
    """Count the turns whose calls were all made before in one turn, with the same results."""
    seen: Counter[str] = Counter()
    for turn in trajectory.turns:
        if turn.results:
            calls = [(call.name, call.arguments) for call in turn.calls]
            seen[_canonical([calls, [result.observed for result in turn.results]])] += 1
    return sum(seen.values()) - len(seen)


def abandoned(cleaned: Cleaned[Any]) -> int:
    """Count the chains of failures without a correction after which the model went on with something else."""
    failed = {each.turn for each in cleaned.left_alone}
    uncorrected = {each.turn for each in cleaned.left_alone if each.reason is Reason.UNCORRECTED}
    last = len(cleaned.trajectory.turns) - 1
    return sum(index < last and index + 1 not in failed for index in uncorrected)


def _with_scores(turns: Sequence[Turn[S]], before: Sequence[Turn[S]]) -> list[Turn[S]]:
    """Return the turns with the log-probs of earlier re-scorings up to the first new edit: nothing moved there."""
    same = takewhile(lambda pair: _replaced(pair[0]) is _replaced(pair[1]), zip(turns, before, strict=False))
    kept = [replace(scored, edit=turn.edit) for turn, scored in same]
    return [*kept, *turns[len(kept) :]]


def _replaced(turn: Turn[S]) -> tuple[Turn[S], ...] | None:
    return None if turn.edit is None else turn.edit.original


def _stretches(trajectory: Trajectory[S]) -> Iterator[tuple[Turn[S], ...]]:
    spoken = set(log_of(trajectory).get("spoken", ()))
    start = raw = 0
    for index, turn in enumerate(trajectory.turns):
        raw += _sampled(turn)
        following = trajectory.turns[index + 1 : index + 2]
        if not following or raw - 1 in spoken or _turns_away(turn, following[0]):
            yield trajectory.turns[start : index + 1]
            start = index + 1


def _sampled(turn: Turn[S]) -> int:
    """Return how many turns of the log a turn stands for."""
    return 1 if turn.edit is None else sum(map(_sampled, turn.edit.original))


def _turns_away(failed: Turn[S], following: Turn[S]) -> bool:
    """Return whether a turn after a failure uses other tools."""
    if not failed.failed or not following.calls or any(call.problem for call in failed.calls):
        return False
    return {call.name for call in failed.calls} != {call.name for call in following.calls}

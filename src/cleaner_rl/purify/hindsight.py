"""Hindsight: collapse a failure, or a chain of them, onto the correction that the same trajectory already holds.

The rollout goes through its errors within its normal budget; nothing is sampled for this. The same function serves
training and logs that already exist. What it takes away stays in the edit, so `undo` gives the original back.

Limits: the correction is the first turn after the failures whose calls are all ok. That it mends *them* is an
assumption, which similarity weighs (an unlike correction replaces the reasoning too) and nothing proves. On a stateful
tool a failed cell may have left something behind that the correction needs: `prove` replays the result and undoes it if
it differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Generic

from cleaner_rl.purify.policies import PurifyPolicy, SplicePolicy, Which
from cleaner_rl.purify.splice import splices
from cleaner_rl.purify.stale import later_mentions
from cleaner_rl.tools import Status, ToolResult
from cleaner_rl.trajectory import Edit, Mode, Trajectory, Turn, cut_before_repairs
from cleaner_rl.trajectory.spans import S


class Reason(StrEnum):
    """Why a failed turn was left alone."""

    UNMENDED = "unmended"
    """No turn with working calls follows before the model turns to something else or stops."""
    PARTIAL = "partial"
    """Some of its calls worked, and the correction doesn't repeat them: collapsing it would lose their results."""
    STALE = "stale"
    """The correction's reasoning talks of the error, and the policy refuses that."""
    UNSUCCESSFUL = "unsuccessful"
    """The task was not solved, and the policy leaves such rollouts raw."""
    UNDONE = "undone"
    """A replay of what hindsight made gave something else, so the trajectory is as it was."""
    UNUSABLE = "unusable"
    """The trajectory ended in a fault or was dropped: it is not to be used at all."""


@dataclass(frozen=True, slots=True)
class LeftAlone:
    """A failed turn of the result that hindsight did not touch, and why."""

    turn: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Purified(Generic[S]):
    """The collapsed trajectory, and what was left alone in it."""

    trajectory: Trajectory[S]
    left_alone: tuple[LeftAlone, ...]


def hindsight(trajectory: Trajectory[S], policy: SplicePolicy) -> Purified[S]:
    """Collapse every failure that the model itself mended later. Re-score last: a re-scored trajectory is refused."""
    if any(span.is_rescored for turn in trajectory.turns for span in turn.spans()):
        raise ValueError(
            "this trajectory was re-scored already; take `without_rescoring` of it, then re-score once, last"
        )
    if not trajectory.usable:
        return Purified(trajectory, left_of(trajectory.turns, Reason.UNUSABLE))
    turns: list[Turn[S]] = []
    left: list[LeftAlone] = []
    position = 0
    while position < len(trajectory.turns):
        chain = _chain(trajectory.turns, position)
        position += len(chain)
        chain, reason = _collapse(chain, policy)
        left += left_of(chain, reason, len(turns))
        turns += chain
    return Purified(replace(trajectory, turns=tuple(note_stale(turns))), tuple(left))


def left_of(turns: Sequence[Turn[S]], reason: Reason, first: int = 0) -> tuple[LeftAlone, ...]:
    """Each failed turn, as left alone for this reason; `first` is the place of the first of these turns."""
    return tuple(LeftAlone(index, reason) for index, turn in enumerate(turns, first) if turn.failed)


def settle(trajectory: Trajectory[S], policy: PurifyPolicy, mode: Mode) -> Trajectory[S]:
    """The trajectory to train on, once it is graded: what the policy's `which` and the way to purify make of it.

    Under `successful`, a failed rollout stays raw: whole if it was rolled out raw, and cut after its first failure if
    it was repaired live, because what followed that was sampled after a correction that is not to be trained on.
    """
    if policy.which is Which.SUCCESSFUL:
        if trajectory.success is None:
            raise ValueError("which='successful' needs graded trajectories; set `success` first")
        if not trajectory.success:
            return cut_before_repairs(trajectory)
    return trajectory if mode is Mode.LIVE else hindsight(trajectory, policy.splice).trajectory


def _chain(turns: tuple[Turn[S], ...], start: int) -> tuple[Turn[S], ...]:
    """One turn that did not fail; or failures in a row, with the turn after them if that one works."""
    end = start
    while end < len(turns) and turns[end].failed:
        end += 1
    if end == start or (end < len(turns) and turns[end].verified):
        end += 1
    return turns[start:end]


def _collapse(chain: tuple[Turn[S], ...], policy: SplicePolicy) -> tuple[tuple[Turn[S], ...], Reason]:
    """The chain with as many of its last failures collapsed as can be, and why the others stay."""
    correction = chain[-1]
    if not correction.verified:
        return chain, Reason.UNMENDED
    last = first = len(chain) - 1
    while first and _is_covered(chain[first - 1], correction):
        first -= 1
    if first == last:
        return chain, Reason.PARTIAL
    turn = next(splices(Mode.HINDSIGHT, chain[first:], policy))
    if policy.refuse_stale and turn.edit is not None and turn.edit.stale:
        return chain, Reason.STALE
    return (*chain[:first], turn), Reason.PARTIAL


def _is_covered(failed: Turn[S], correction: Turn[S]) -> bool:
    """Whether what worked in a failed turn is done again by the correction, so that nothing is lost with it."""
    redone = {call.code for call in correction.calls}
    worked = (
        call.code for call, result in zip(failed.calls, failed.results, strict=True) if result.status is Status.OK
    )
    return all(code in redone for code in worked)


def note_stale(turns: Sequence[Turn[S]]) -> list[Turn[S]]:
    """Add to each edit what *later* turns say of its errors: they were sampled while those still stood there."""
    later = later_mentions([turn.reasoning.text for turn in turns], [_taken_away(turn.edit) for turn in turns])
    noted = []
    for turn, words in zip(turns, later, strict=True):
        edit = turn.edit
        if edit is not None and words:
            turn = replace(turn, edit=replace(edit, stale=tuple(dict.fromkeys((*edit.stale, *words)))))
        noted.append(turn)
    return noted


def _taken_away(edit: Edit[S] | None) -> list[ToolResult]:
    """The failures that an edit in hindsight stands for."""
    if edit is None or edit.mode is not Mode.HINDSIGHT:
        return []
    return [result for turn in edit.original for result in turn.results if result.failed]

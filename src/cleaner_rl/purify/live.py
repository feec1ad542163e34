"""SAAR, live: on a failure look ahead for the model's own correction, run it, and only then rewrite the turn.

The history stays frozen while attempts pile up in a context that exists for the lookahead alone. What happens to it:

    verified   one turn that stands for the failure and its correction; the rollout goes on from there
    unrepaired the failure as it was, with or without its attempts, by the policy
    fault      nothing: whatever broke, the rollout is unusable

The caller brings two functions. `sample` draws a turn after a context; `execute` runs a turn's calls from the state
that the failed turn's first call saw (on a session: after a rollback) and returns the turn with results and
observation. Whatever they raise goes through.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Generic, TypeAlias

from cleaner_rl.purify.policies import PurifyPolicy, Unrepaired
from cleaner_rl.purify.splice import splices
from cleaner_rl.tools import Status
from cleaner_rl.trajectory import Edit, Granularity, Mode, Seeds, Trajectory, Turn
from cleaner_rl.trajectory.spans import S


@dataclass(frozen=True, slots=True)
class Budget:
    """What a repair may still use, in the unit of the trajectory's spans."""

    lookahead: int
    """For what attempts sample. It is the lookahead's own: none of it counts against the response."""
    context: int
    """The model's window; prompt, history, attempts and the next attempt must fit."""
    response: int
    """For what is committed."""


@dataclass(frozen=True, slots=True)
class SampleRequest(Generic[S]):
    """Draw one turn."""

    context: Trajectory[S]
    seed: int
    max_length: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Draft(Generic[S]):
    """A turn as sampled, before its calls ran."""

    turn: Turn[S]
    complete: bool = True
    """Whether the model ended it; false if it was cut off at `max_length`."""


class Verdict(StrEnum):
    """How a repair ended."""

    REPAIRED = "repaired"
    UNREPAIRED = "unrepaired"
    DROPPED = "dropped"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Repair(Generic[S]):
    """What to append to the history in place of the failed turn."""

    verdict: Verdict
    turns: tuple[Turn[S], ...]
    lookahead: int
    """How much the attempts sampled."""


Sample: TypeAlias = Callable[[SampleRequest[S]], Awaitable[Draft[S]]]
Execute: TypeAlias = Callable[[Turn[S]], Awaitable[Turn[S]]]
Gate: TypeAlias = Callable[[Trajectory[S]], Awaitable[Trajectory[S] | None]]
"""A last word on a correction, given the history with it: the same, perhaps re-scored, or None to refuse it."""

NO_ROOM = "no room for another attempt"
NO_CORRECTION = "no attempt was verified"
PARTIAL = "the correction doesn't say again what calls that worked had said"
TOO_LONG = "the correction is longer than what is left of the response"
STALE = "the correction's reasoning talks of the error that it removes"
GATED = "the gate refused the correction"


async def repair(
    history: Trajectory[S],
    failed: Turn[S],
    *,
    sample: Sample[S],
    execute: Execute[S],
    policy: PurifyPolicy,
    budget: Budget,
    seeds: Seeds,
    gate: Gate[S] | None = None,
) -> Repair[S]:
    """Mend a turn in which the model failed. `history` is what stands before it, and stays as it is."""
    if failed.faulty:
        return Repair(Verdict.FAULT, (failed,), 0)
    attempts: list[Turn[S]] = []
    context = _after(history, failed)
    spent = 0
    refusal = NO_CORRECTION
    for attempt in range(1, policy.attempts + 1):
        room = min(budget.lookahead - spent, budget.context - len(context))
        if room <= 0:
            refusal = NO_ROOM
            break
        seed = seeds.request(len(history.turns), attempt)
        draft = await sample(SampleRequest(context, seed, room, attempt))
        turn = replace(draft.turn, attempt=attempt)
        spent += len(turn)
        if not turn.calls or not draft.complete:
            # Nothing ran, so there is no feedback to go on from: the next attempt starts where this one did.
            attempts.append(turn)
            continue
        turn = await execute(turn)
        attempts.append(turn)
        if turn.faulty:
            return Repair(Verdict.FAULT, (_keep_first(failed, attempts, ""),), spent)
        if turn.verified and _tells_less(turn, failed):
            # The failure would take along what the model knows from calls beside it.
            refusal = PARTIAL
        elif turn.verified:
            committed = await _commit(history, (failed, *attempts), policy, budget, gate)
            if isinstance(committed, Turn):
                return Repair(Verdict.REPAIRED, (committed,), spent)
            refusal = committed
            break
        context = _after(context, turn)
    return _unrepaired(failed, attempts, refusal, policy, budget, spent)


async def _commit(
    history: Trajectory[S], original: tuple[Turn[S], ...], policy: PurifyPolicy, budget: Budget, gate: Gate[S] | None
) -> Turn[S] | str:
    """The turn to commit, or why the last candidate was refused."""
    refusal = NO_CORRECTION
    for turn in splices(Mode.LIVE, original, policy.splice):
        if len(turn) > budget.response:
            refusal = TOO_LONG
        elif policy.splice.refuse_stale and turn.edit is not None and turn.edit.stale:
            refusal = STALE
        elif gate is None:
            return turn
        elif (gated := await gate(_after(history, turn))) is not None:
            return gated.turns[-1]
        else:
            refusal = GATED
    return refusal


def _tells_less(correction: Turn[S], failed: Turn[S]) -> bool:
    """Whether calls that worked in the failed turn gave something that the correction neither runs nor prints again."""
    again = {call.code for call in correction.calls}
    said = {line for result in correction.results for line in result.output.splitlines()}
    return any(
        result.status is Status.OK and call.code not in again and not said.issuperset(result.output.splitlines())
        for call, result in zip(failed.calls, failed.results, strict=True)
    )


def _unrepaired(
    failed: Turn[S], attempts: list[Turn[S]], refusal: str, policy: PurifyPolicy, budget: Budget, spent: int
) -> Repair[S]:
    if policy.unrepaired is Unrepaired.KEEP_ATTEMPTS:
        turns = _keep_attempts(failed, attempts, refusal)
        if sum(map(len, turns)) <= budget.response:
            return Repair(Verdict.UNREPAIRED, turns, spent)
    dropped = policy.unrepaired is Unrepaired.DROP
    first = _keep_first(failed, attempts, refusal)
    return Repair(Verdict.DROPPED if dropped else Verdict.UNREPAIRED, (first,), spent)


def _keep_first(failed: Turn[S], attempts: list[Turn[S]], refusal: str) -> Turn[S]:
    edit = Edit(Mode.LIVE, Granularity.NONE, (failed, *attempts), refusal=refusal)
    return replace(failed, edit=edit)


def _keep_attempts(failed: Turn[S], attempts: list[Turn[S]], refusal: str) -> tuple[Turn[S], ...]:
    """The true history. An attempt without feedback was a side branch: it is kept with the turn it branched from."""
    kept = [[failed]]
    for attempt in attempts:
        if attempt.observation is None:
            kept[-1].append(attempt)
        else:
            kept.append([attempt])
    return tuple(
        _keep_first(turn, branches, refusal) if branches or turn is failed else turn for turn, *branches in kept
    )


def _after(trajectory: Trajectory[S], turn: Turn[S]) -> Trajectory[S]:
    return replace(trajectory, turns=(*trajectory.turns, turn))

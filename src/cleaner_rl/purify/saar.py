"""Repairs a failed turn by SAAR: looks ahead for the model's own correction, runs it, and then rewrites the turn.

SAAR is Similarity-Aware Adaptive Rollback. The history does not change while attempts are added to a context that
exists for the lookahead alone. The outcomes:

    repaired    one turn stands for the failure and its correction, and the rollout goes on from there
    unrepaired  the failure stays, with or without its attempts, as the config says
    dropped     no attempt was verified, and the config drops such rollouts
    fault       the infrastructure broke, and the rollout is unusable

The caller gives two functions. `sample` draws a turn after a context. `execute` runs a turn's calls from the state that
the failed turn's first call saw (in a session: after a rollback) and returns the turn with results and observation.
What they raise goes through.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Generic, TypeAlias

from cleaner_rl.purify.config import OnUnrepaired, PurifyConfig
from cleaner_rl.purify.coverage import covers
from cleaner_rl.purify.splice import splices
from cleaner_rl.trajectory import Edit, RepairKind, RepairMode, S, Seeds, Trajectory, Turn


@dataclass(frozen=True, slots=True)
class RepairBudget:
    """What a repair may still use, in the unit of the trajectory's spans: tokens or characters."""

    lookahead: int
    """What attempts may sample. It does not count against the response."""
    context: int
    """The model's context window. Prompt, history, attempts and the next attempt must fit."""
    response: int
    """Length that the committed turns may have."""


@dataclass(frozen=True, slots=True)
class SampleRequest(Generic[S]):
    """A request to draw one turn."""

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


class RepairOutcome(StrEnum):
    """Says how a repair ended."""

    REPAIRED = "repaired"
    UNREPAIRED = "unrepaired"
    DROPPED = "dropped"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class RepairResult(Generic[S]):
    """How a repair ended, and what to append to the history in place of the failed turn."""

    verdict: RepairOutcome
    turns: tuple[Turn[S], ...]
    lookahead: int
    """How much the attempts sampled."""


Sample: TypeAlias = Callable[[SampleRequest[S]], Awaitable[Draft[S]]]
Execute: TypeAlias = Callable[[Turn[S]], Awaitable[Turn[S]]]
Gate: TypeAlias = Callable[[Trajectory[S]], Awaitable[Trajectory[S] | None]]
"""Decides about a correction, given the history with it: returns that, perhaps re-scored, or None to refuse it."""

NO_ROOM = "no room for another attempt"
NO_CORRECTION = "no attempt was verified"
PARTIAL = "the correction neither runs nor prints again what worked beside the failed call"
TOO_LONG = "the correction is longer than what is left of the response"
STALE = "the correction's reasoning mentions the error that it removes"
GATED = "the gate refused the correction"


async def repair(
    history: Trajectory[S],
    failed: Turn[S],
    *,
    sample: Sample[S],
    execute: Execute[S],
    config: PurifyConfig,
    budget: RepairBudget,
    seeds: Seeds,
    gate: Gate[S] | None = None,
) -> RepairResult[S]:
    """Repair a turn in which a call of the model failed.

    Args:
        history: The trajectory before the failed turn. It is not changed.
        failed: The failed turn, with its results.
        sample: Draws the next turn after a context.
        execute: Runs the calls of a turn from the state that `failed` began in, and returns the turn with results.
        config: Number of attempts, similarity threshold, and what happens without a correction.
        budget: What attempts and the committed turn may use.
        seeds: Seeds of the rollout; every attempt has its own.
        gate: Decides about the correction before it is committed, such as `gap_gate`.

    Examples:
        >>> import asyncio
        >>> from dataclasses import replace
        >>> from cleaner_rl.purify import Draft, PurifyConfig, RepairBudget, repair
        >>> from cleaner_rl.tools import Status, ToolResult, ToolSet, call_format, python_tool
        >>> from cleaner_rl.trajectory import Seeds, TextSpan, Trajectory, read_text
        >>> def said(code):
        ...     return read_text(f"I add.\\n```python\\n{code}\\n```", call_format("fenced"), ToolSet(python_tool()))
        >>> def ran(turn, status, output):
        ...     return replace(turn, results=(ToolResult(status, output),), observation=TextSpan(output))
        >>> async def sample(request):
        ...     return Draft(said("print(1 + 1)"))
        >>> async def execute(turn):
        ...     return ran(turn, Status.OK, "2")
        >>> failed = ran(said("print(1 + y)"), Status.ERROR, "NameError")
        >>> made = repair(
        ...     Trajectory(TextSpan("1 + 1?")),
        ...     failed,
        ...     sample=sample,
        ...     execute=execute,
        ...     config=PurifyConfig(),
        ...     budget=RepairBudget(lookahead=1000, context=1000, response=1000),
        ...     seeds=Seeds(run=0, task="sum", rollout=0),
        ... )
        >>> result = asyncio.run(made)
        >>> result.verdict.value, result.turns[0].code.strip(), result.turns[0].edit.kind.value
        ('repaired', 'print(1 + 1)', 'graft')
    """
    if failed.faulty:
        return RepairResult(RepairOutcome.FAULT, (failed,), 0)
    attempts: list[Turn[S]] = []
    context = _after(history, failed)
    spent = 0
    refusal = NO_CORRECTION
    for attempt in range(1, config.attempts + 1):
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
            return RepairResult(RepairOutcome.FAULT, (_keep_first(failed, attempts, ""),), spent)
        removed = (failed, *attempts[:-1])
        if turn.verified and not all(covers(turn, each, rolled_back=True) for each in removed):
            # The model knows from these turns what the repaired history would not hold.
            refusal = PARTIAL
        elif turn.verified:
            committed = await _commit(history, (failed, *attempts), config, budget, gate)
            if isinstance(committed, Turn):
                return RepairResult(RepairOutcome.REPAIRED, (committed,), spent)
            refusal = committed
            break
        context = _after(context, turn)
    return _unrepaired(failed, attempts, refusal, config, budget, spent)


async def _commit(
    history: Trajectory[S],
    original: tuple[Turn[S], ...],
    config: PurifyConfig,
    budget: RepairBudget,
    gate: Gate[S] | None,
) -> Turn[S] | str:
    """Return the turn to commit, or why the last candidate was refused."""
    refusal = NO_CORRECTION
    for turn in splices(RepairMode.SAAR, original, config.repair):
        if len(turn) > budget.response:
            refusal = TOO_LONG
        elif config.repair.refuse_stale and turn.edit is not None and turn.edit.stale:
            refusal = STALE
        elif gate is None:
            return turn
        elif (gated := await gate(_after(history, turn))) is not None:
            return gated.turns[-1]
        else:
            refusal = GATED
    return refusal


def _unrepaired(
    failed: Turn[S], attempts: list[Turn[S]], refusal: str, config: PurifyConfig, budget: RepairBudget, spent: int
) -> RepairResult[S]:
    if config.on_unrepaired is OnUnrepaired.KEEP_ATTEMPTS:
        turns = _keep_attempts(failed, attempts, refusal)
        if sum(map(len, turns)) <= budget.response:
            return RepairResult(RepairOutcome.UNREPAIRED, turns, spent)
    dropped = config.on_unrepaired is OnUnrepaired.DROP
    first = _keep_first(failed, attempts, refusal)
    return RepairResult(RepairOutcome.DROPPED if dropped else RepairOutcome.UNREPAIRED, (first,), spent)


def _keep_first(failed: Turn[S], attempts: list[Turn[S]], refusal: str) -> Turn[S]:
    edit = Edit(RepairMode.SAAR, RepairKind.NONE, (failed, *attempts), refusal=refusal)
    return replace(failed, edit=edit)


def _keep_attempts(failed: Turn[S], attempts: list[Turn[S]], refusal: str) -> tuple[Turn[S], ...]:
    """Return the true history. An attempt without feedback was a side branch: it is kept with its parent turn."""
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

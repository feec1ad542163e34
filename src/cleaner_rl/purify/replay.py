"""Replays a trajectory: runs its calls again and compares the results with those that it recorded.

Results are compared as they are: status, output, exception and line. Nothing is normalised; a program that prints the
time is nondeterministic, and is called so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeAlias

from cleaner_rl.tools import ToolCall, ToolResult
from cleaner_rl.trajectory import S, Trajectory, without_hindsight

ExecuteCall: TypeAlias = Callable[[ToolCall], Awaitable[ToolResult]]
Fresh: TypeAlias = Callable[[], AbstractAsyncContextManager[ExecuteCall]]
"""Opens a fresh environment: a new session, or nothing for a tool without state."""


class ReplayVerdict(StrEnum):
    """The verdict of a replay."""

    SAME = "same"
    DIFFERENT = "different"
    NONDETERMINISTIC = "nondeterministic"
    """Two replays differ from each other, so the recorded results can be neither confirmed nor refuted."""


@dataclass(frozen=True, slots=True)
class ReplayDifference:
    """The first call whose replayed result differs from the recorded one."""

    turn: int
    call: int
    recorded: ToolResult
    replayed: ToolResult


@dataclass(frozen=True, slots=True)
class Replay:
    """The verdict of a replay, and the first difference if there is one."""

    verdict: ReplayVerdict
    difference: ReplayDifference | None = None


@dataclass(frozen=True, slots=True)
class Proof(Generic[S]):
    """A trajectory that may be used, and what its replay found."""

    trajectory: Trajectory[S]
    replay: Replay


class ReplayFaultError(RuntimeError):
    """The infrastructure broke during a replay, which therefore says nothing."""


async def replay(trajectory: Trajectory[S], fresh: Fresh) -> Replay:
    """Run all calls again in a fresh environment, and once more if the results differ from the recorded ones."""
    recorded = [
        (turn, call, result) for turn, each in enumerate(trajectory.turns) for call, result in enumerate(each.results)
    ]
    first = await _run(trajectory, fresh)
    difference = next(
        (
            ReplayDifference(turn, call, result, again)
            for (turn, call, result), again in zip(recorded, first, strict=True)
            if result.observed != again.observed
        ),
        None,
    )
    if difference is None:
        return Replay(ReplayVerdict.SAME)
    second = await _run(trajectory, fresh)
    agree = [result.observed for result in first] == [result.observed for result in second]
    return Replay(ReplayVerdict.DIFFERENT if agree else ReplayVerdict.NONDETERMINISTIC, difference)


async def verify_by_replay(trajectory: Trajectory[S], fresh: Fresh) -> Proof[S]:
    """Replay a trajectory that was repaired in hindsight, and undo its repairs if it doesn't give the same."""
    found = await replay(trajectory, fresh)
    return Proof(trajectory if found.verdict is ReplayVerdict.SAME else without_hindsight(trajectory), found)


async def _run(trajectory: Trajectory[S], fresh: Fresh) -> list[ToolResult]:
    results = []
    async with fresh() as execute:
        for turn in trajectory.turns:
            for call in turn.calls[: len(turn.results)]:
                result = call.refusal or await execute(call)
                if result.faulty:
                    raise ReplayFaultError(f"the tool broke during a replay: {result.explanation}; replay it again")
                results.append(result)
    return results

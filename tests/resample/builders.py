"""Rollouts and groups with as little text as resampling needs: it reads statuses alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cleaner_rl.resample import Quality, RolloutGroup
from cleaner_rl.tools import Status, ToolCall, ToolResult
from cleaner_rl.trajectory import Edit, Key, RepairKind, RepairMode, StopReason, Tally, TextSpan, Trajectory, Turn

OK, ERROR, TIMEOUT, FAULT = Status.OK, Status.ERROR, Status.TIMEOUT, Status.FAULT
CLEAN = Quality(Tally(0, 1), Tally(0, 1))


def turn(*statuses: Status, attempt: int = 0, output: str = "") -> Turn[TextSpan]:
    calls = tuple(ToolCall("python", {}, "", 0, 0) for _ in statuses)
    results = tuple(ToolResult(status, output) for status in statuses)
    return Turn(TextSpan("so"), TextSpan("call"), TextSpan("seen"), calls, results, attempt)


def edited(
    mode: RepairMode, *original: Turn[TextSpan], kind: RepairKind = RepairKind.GRAFT, result: Status = OK
) -> Turn[TextSpan]:
    return replace(turn(result), edit=Edit(mode, kind, original))


def rollout(
    *turns: Turn[TextSpan],
    number: int = 0,
    task: str = "t",
    step: int = 0,
    reward: float | None = 1.0,
    success: bool | None = None,
    stop_reason: StopReason = StopReason.ANSWERED,
) -> Trajectory[TextSpan]:
    return Trajectory(TextSpan("?"), turns, Key("run", step, task, number), reward, success, stop_reason)


def quality(failed: int, calls: int, residual: int | None = None, penalty: float = 0.0) -> Quality:
    return Quality(Tally(failed, calls), Tally(failed if residual is None else residual, calls), penalty)


def group(
    rewards: Sequence[float],
    qualities: Sequence[Quality] | None = None,
    usable: Sequence[bool] | None = None,
    rollouts: Sequence[int] | None = None,
    task: str = "t",
    step: int = 0,
) -> RolloutGroup:
    size = len(rewards)
    return RolloutGroup(
        task,
        step,
        rewards,
        [CLEAN] * size if qualities is None else qualities,
        [reward > 0 for reward in rewards],
        range(size) if rollouts is None else rollouts,
        [True] * size if usable is None else usable,
    )

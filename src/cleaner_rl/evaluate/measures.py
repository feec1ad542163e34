"""What one trajectory says about its model: one flat record, from which every figure of a report is made.

Errors are counted twice: as the model made them, before anybody helped (*first attempts*), and as they are in the
final history (*residual*). Without repair both are the same.

An *episode* is a run of failed turns without a working one between them. It is recovered if a working turn ends it: a
later one of the model's own, or, with repair, the correction that replaced it.

Limits: in a text trajectory lengths are characters, not tokens; `Sample.tokens` says which. Latency is wall time,
so it depends on how many rollouts the engine served at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from cleaner_rl.trajectory import (
    AnyTrajectory,
    StopReason,
    TextSpan,
    TokenSpan,
    Trajectory,
    first_attempt_tally,
    residual_tally,
    sampled_turns,
)

NOT_GRADED = "It was not graded."
OUT_OF_TIME = "It reached the wall-time limit, which depends on the machine."


@dataclass(frozen=True, slots=True)
class Sample:
    """One rollout of a problem, with the figures that an evaluation uses."""

    task: str
    rollout: int
    right: bool | None
    """None for a fault, which is neither right nor wrong and in no figure."""
    fault: str = ""
    """What broke; empty if nothing did."""
    turns: int = 0
    calls: int = 0
    """Calls that the model made before any repair."""
    failed_first: int = 0
    """How many of these failed."""
    failed_left: int = 0
    """Failed calls in the final history."""
    episodes: int = 0
    recovered: int = 0
    sampled: int = 0
    """Length of all that the model sampled as the rollout itself."""
    lookahead: int = 0
    """Length of all that its lookaheads sampled, used or not."""
    tokens: bool = True
    tool_seconds: float = 0.0
    seconds: float | None = None
    stop_reason: str = ""
    answer: str | None = None
    """The answer that the grader found in it; None: it found none, or the answers are programs, which don't vote."""


def measure(trajectory: AnyTrajectory) -> Sample:
    """Return the record of a finished rollout."""
    key, stop_reason = trajectory.key, trajectory.stop_reason
    fault = fault_of(trajectory)
    first, residual = first_attempt_tally(trajectory), residual_tally(trajectory)
    sampled = lookahead = 0
    tool_seconds = 0.0
    for piece in (
        each.turn for each in sampled_turns(cast("Trajectory[TextSpan]", trajectory))
    ):  # or of the other kind
        written = len(piece.reasoning) + (len(piece.action) if piece.action is not None else 0)
        if piece.attempt:
            lookahead += written
        else:
            sampled += written
        tool_seconds += sum(result.seconds or 0.0 for result in piece.results)
    episodes, recovered = _episodes(trajectory)
    return Sample(
        task=key.task,
        rollout=key.rollout,
        right=None if fault else trajectory.success,
        fault=fault,
        turns=len(trajectory.turns),
        calls=first.calls,
        failed_first=first.failed,
        failed_left=residual.failed,
        episodes=episodes,
        recovered=recovered,
        sampled=sampled,
        lookahead=lookahead,
        tokens=isinstance(trajectory.prompt, TokenSpan),
        tool_seconds=tool_seconds,
        seconds=trajectory.info.seconds,
        stop_reason=stop_reason or "",
        answer=trajectory.info.answer,
    )


def fault_of(trajectory: AnyTrajectory) -> str:
    """Why a rollout is in no figure; empty if it is."""
    for turn in trajectory.turns:
        for result in turn.results:
            if result.faulty:
                return result.explanation or "A tool was not available."
    if trajectory.stop_reason is StopReason.FAULT:
        return trajectory.info.fault or "The engine or a tool had a fault."
    if trajectory.success is None:
        # Dropped rollouts have no success either: leaving them out would flatter the model.
        if trajectory.stop_reason is StopReason.DROPPED:
            raise ValueError(
                f"rollout {trajectory.key} was dropped; evaluate with settings that keep failures (on_unrepaired)"
            )
        return OUT_OF_TIME if trajectory.stop_reason is StopReason.TIME_LIMIT else trajectory.info.fault or NOT_GRADED
    return ""


def _episodes(trajectory: AnyTrajectory) -> tuple[int, int]:
    """Runs of failures, and how many of them a working turn ended."""
    episodes = recovered = 0
    failing = False
    for turn in trajectory.turns:
        repaired = turn.edit is not None and turn.edit.commits
        if (repaired or turn.failed) and not failing:
            episodes += 1
            failing = True
        if turn.verified and failing:
            recovered += 1
            failing = False
    return episodes, recovered

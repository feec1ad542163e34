"""What one trajectory says about its model: one flat record, from which every figure of a report is made.

Errors are counted twice: as the model made them, before anybody helped (*first attempts*), and as they stand in the
final history (*residual*). Without repair both are the same.

An *episode* is a run of failed turns without a working one between them. It is recovered if a working turn ends it: a
later one of the model's own, or, with repair, the correction that stands in its place.

Limits: in a text trajectory lengths are characters, not tokens; `Sample.tokens` says which. Latency is wall time,
so it depends on how many rollouts the engine served at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from cleaner_rl.trajectory import (
    AnyTrajectory,
    Ending,
    TextSpan,
    TokenSpan,
    Trajectory,
    first_attempt_tally,
    raw,
    residual_tally,
)

SECONDS = "seconds"
"""The entry of `Trajectory.extra` that holds a rollout's wall time."""
NOT_GRADED = "It was not graded."
OUT_OF_TIME = "It ran out of wall time, which is the machine's doing too."


@dataclass(frozen=True, slots=True)
class Sample:
    """One rollout of a problem, as far as an evaluation looks at it."""

    task: str
    rollout: int
    right: bool | None
    """None for a fault, which is neither right nor wrong and in no figure."""
    fault: str = ""
    """What broke, where something did."""
    turns: int = 0
    calls: int = 0
    """That the model made unaided."""
    failed_first: int = 0
    """Of these."""
    failed_left: int = 0
    """In the final history."""
    episodes: int = 0
    recovered: int = 0
    sampled: int = 0
    """Length of all that the model sampled as the rollout itself."""
    lookahead: int = 0
    """Length of all that it sampled to look ahead, used or not."""
    tokens: bool = True
    tool_seconds: float = 0.0
    seconds: float | None = None
    ending: str = ""


def measure(trajectory: AnyTrajectory) -> Sample:
    """The record of a finished rollout."""
    key, ending = trajectory.key, trajectory.ending
    fault = fault_of(trajectory)
    first, residual = first_attempt_tally(trajectory), residual_tally(trajectory)
    sampled = lookahead = 0
    tool_seconds = 0.0
    for piece in (each.turn for each in raw(cast("Trajectory[TextSpan]", trajectory))):  # or of the other kind
        written = len(piece.reasoning) + (len(piece.action) if piece.action is not None else 0)
        if piece.attempt:
            lookahead += written
        else:
            sampled += written
        tool_seconds += sum(result.seconds or 0.0 for result in piece.results)
    episodes, recovered = _episodes(trajectory)
    seconds = trajectory.extra.get(SECONDS)
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
        seconds=float(seconds) if isinstance(seconds, int | float) else None,
        ending=ending or "",
    )


def fault_of(trajectory: AnyTrajectory) -> str:
    """Why a rollout is in no figure; empty if it is."""
    for turn in trajectory.turns:
        for result in turn.results:
            if result.faulty:
                return result.explanation or "A tool was not available."
    reason = trajectory.extra.get("fault")
    if trajectory.ending is Ending.FAULT:
        return str(reason or "The engine or a tool broke.")
    if trajectory.success is None:
        # Dropped rollouts have no success either: leaving them out would flatter the model.
        if trajectory.ending is Ending.DROPPED:
            raise ValueError(f"rollout {trajectory.key} was dropped; evaluate with a policy that keeps failures")
        return OUT_OF_TIME if trajectory.ending is Ending.TIME_LIMIT else str(reason or NOT_GRADED)
    return ""


def _episodes(trajectory: AnyTrajectory) -> tuple[int, int]:
    """Runs of failures, and how many of them a working turn ended."""
    episodes = recovered = 0
    failing = False
    for turn in trajectory.turns:
        mended = turn.edit is not None and turn.edit.commits
        if (mended or turn.failed) and not failing:
            episodes += 1
            failing = True
        if turn.verified and failing:
            recovered += 1
            failing = False
    return episodes, recovered

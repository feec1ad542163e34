"""Computes the metrics of docs/reference/metrics.md from trajectories alone, so that a stored run gives them too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite

from cleaner_rl.resample import learning_signal
from cleaner_rl.rollout import RescueTry
from cleaner_rl.train.rows import Graded
from cleaner_rl.trajectory import (
    RepairKind,
    TokenSpan,
    failures_repaired,
    first_attempt_tally,
    logprob_gap,
    residual_tally,
)


def figures_of(rows: Sequence[Graded]) -> dict[str, float]:
    """Means over some trajectories; NaN where there is nothing to take a mean of."""
    edits = [edit for row in rows for _, edit in row.edits]
    first = [first_attempt_tally(row) for row in rows]
    gaps = [found for row in rows if (found := _gaps(row))]
    alike = [edit.similarity for edit in edits if edit.similarity is not None]
    failed = sum(tally.failed for tally in first)
    calls = sum(tally.calls for tally in first)
    return {
        "reward": _mean([row.reward or 0.0 for row in rows]),
        "accuracy": _mean([float(bool(row.success)) for row in rows]),
        "tokens": _mean([float(len(row)) for row in rows]),
        "turns": _mean([float(len(row.turns)) for row in rows]),
        "errors_per_trajectory": _mean([float(residual_tally(row).failed) for row in rows]),
        "first_attempt_errors_per_trajectory": _mean([float(tally.failed) for tally in first]),
        "first_attempt_success": 1 - failed / calls if calls else float("nan"),
        "repaired": _mean([float(repaired) for row in rows for repaired in failures_repaired(row)]),
        "repairs_tried": _mean([float(sum(1 for _, edit in row.edits)) for row in rows]),
        "grafts": _count(rows, RepairKind.GRAFT),
        "replacements": _count(rows, RepairKind.REPLACE),
        "refused": _count(rows, RepairKind.NONE),
        "similarity": _mean(alike),
        "logprob_gap": _mean([_mean(found) for found in gaps]),
        "logprob_gap_max": max((value for found in gaps for value in found), default=float("nan")),
        "lookahead_tokens": _mean([row.info.lookahead or 0.0 for row in rows]),
        "seconds": _mean([row.info.seconds or 0.0 for row in rows]),
    }


def group_figures(rows: Sequence[Graded]) -> dict[str, float]:
    """What the groups of a step can teach; NaN where there is nothing to compare."""
    signal = learning_signal(rows)
    return {"zero_variance_share": signal.zero_variance, "first_call_signal": signal.first_call}


def rescue_figures(rescues: Iterable[RescueTry[TokenSpan]]) -> dict[str, float]:
    """How many groups had a rescue, how many of them got a right rollout by it, and what all rescues sampled."""
    tries = list(rescues)
    return {
        "rescue_tries": float(len(tries)),
        "rescues": float(sum(each.rescued is not None for each in tries)),
        "rescue_tokens": float(sum(each.tokens for each in tries)),
    }


def step_figures(
    rollouts: Sequence[Graded], rescues: Sequence[RescueTry[TokenSpan]], faults: int, training: bool
) -> dict[str, float]:
    """Return the figures of a batch of rollouts, by the names of docs/reference/metrics.md."""
    drawn = [rollout for rollout in rollouts if rollout.info.rescued is None]
    usable = [rollout for rollout in drawn if rollout.usable and rollout.reward is not None]
    figures = figures_of(usable) | {"faults": float(faults), "fault_share": faults / max(1, len(drawn))}
    if training:
        figures |= group_figures(usable) | rescue_figures(rescues)
    return {name: value for name, value in figures.items() if isfinite(value)}


def quality(rows: Sequence[Graded]) -> dict[str, float]:
    """Return how clean and how right some trajectories are, which is what RoC selects by."""
    return {
        "errors": _mean([float(residual_tally(row).failed) for row in rows]),
        "accuracy": _mean([float(bool(row.success)) for row in rows]),
    }


def _gaps(row: Graded) -> list[float]:
    return [lost for turn in row.turns if (lost := logprob_gap(turn)) is not None]


def _count(rows: Sequence[Graded], kind: RepairKind) -> float:
    return _mean([float(sum(edit.kind is kind for _, edit in row.edits)) for row in rows])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")

"""How far an edit moved its tokens: their log-prob where they were sampled, less that where they stand."""

from __future__ import annotations

import numpy as np

from cleaner_rl.trajectory.spans import TextSpan, TokenSpan
from cleaner_rl.trajectory.turns import RepairKind, Turn


def logprob_gap(turn: Turn[TokenSpan] | Turn[TextSpan]) -> float | None:
    """Return the mean log-prob that an edit's tokens lost by moving; None if there is no edit or it isn't known."""
    if turn.edit is None or not turn.edit.commits:
        return None
    moved = [turn.action] if turn.edit.kind is RepairKind.GRAFT else [turn.reasoning, turn.action]
    losses = []
    for span in moved:
        if span is None or not len(span):
            continue
        if not isinstance(span, TokenSpan) or span.sampled is None or span.rescored is None:
            return None
        losses.append(span.sampled.logprobs - span.rescored.logprobs)
    return float(np.concatenate(losses).mean(dtype=np.float64)) if losses else None

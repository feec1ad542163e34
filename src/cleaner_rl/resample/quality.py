"""How clean a rollout is: from structured results and from the answer's format, never from words.

The tally of first attempts decides before the residual one, since a repaired rollout looks clean without having been
so: a natively clean success ranks above it.

A rollout without calls has no share of failures. Where shares are compared it gets the median of the rollouts that it
competes with, so that it is neither favoured nor punished for not using a tool.

Limits: all failures weigh the same, a typo as much as a time limit. What an answer is, and how many were given, the
caller finds out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from cleaner_rl.trajectory import AnyTrajectory, Tally, first_attempt_tally, residual_tally


class QualityOf(StrEnum):
    """The tally that decides; the other one breaks ties."""

    FIRST_ATTEMPT = "first_attempt"
    RESIDUAL = "residual"


@dataclass(frozen=True, slots=True)
class Quality:
    """How clean a rollout is: its failed calls before and after repairs, and its format."""

    first_attempt: Tally = Tally()
    residual: Tally = Tally()
    format_penalty: float = 0.0


def assess(trajectory: AnyTrajectory, answers: int = 1) -> Quality:
    """Return the quality of a rollout, repaired or not, in which `answers` final answers were found."""
    return Quality(first_attempt_tally(trajectory), residual_tally(trajectory), format_penalty(answers))


def format_penalty(answers: int) -> float:
    """Return 0 for exactly one final answer, 1 for none, and (n - 1) / n for n of them."""
    if answers < 0:
        raise ValueError(f"{answers} answers can't be; count the final answers that were found, 0 if none was")
    return (answers - 1) / answers if answers else 1.0


def penalties(qualities: Sequence[Quality], quality_of: QualityOf) -> list[tuple[float, float]]:
    """For each of some rollouts that compete: its penalty, and what breaks ties; less is cleaner.

    The penalty is the deciding share plus the format's penalty; ties are broken by the other share.
    """
    first = _comparable([quality.first_attempt.share for quality in qualities])
    residual = _comparable([quality.residual.share for quality in qualities])
    deciding, other = (first, residual) if quality_of == QualityOf.FIRST_ATTEMPT else (residual, first)
    return [(deciding[i] + quality.format_penalty, other[i]) for i, quality in enumerate(qualities)]


def _comparable(shares: Sequence[float | None]) -> list[float]:
    """The shares, with the median of those that exist for those that don't; 0 if none does."""
    known = [share for share in shares if share is not None]
    if len(known) == len(shares):
        return known
    neutral = median(known) if known else 0.0
    return [neutral if share is None else share for share in shares]

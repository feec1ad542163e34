"""GRPO-RoC: of an oversampled group, keep the cleanest successes and a fair sample of the failures.

A reward for the answer alone also rewards every broken call on the way to it. So more rollouts are sampled than trained
on, and the successes are chosen by quality. The failures are a uniform sample, to keep all ways of failing in view. The
ratio of both sides is the group's own, up to rounding and the minimum of each side.

Limits: it sees one group at a time. It chooses rollouts and changes none. Choosing makes the kept a biased sample of
what the policy does, on purpose; nothing corrects for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import log

from cleaner_rl.resample.draws import draws
from cleaner_rl.resample.quality import Quality, QualityOf, penalties


class PositiveSelection(StrEnum):
    """How successes are chosen."""

    CLEANEST = "cleanest"
    """Successes with the lowest penalty, as in the released script."""
    WEIGHTED = "weighted"
    """Successes drawn without replacement, cleaner ones with a higher probability: this keeps some variety."""


@dataclass(frozen=True, slots=True)
class RocConfig:
    """How a group is resampled; the defaults are the released script's where it has the setting."""

    keep: int = 16
    """Rollouts kept per group. The released script samples 32."""
    min_positive: int = 2
    min_negative: int = 2
    """Rollouts kept at least of each side, if it has that many."""
    positives: PositiveSelection = PositiveSelection.CLEANEST
    quality_of: QualityOf = QualityOf.FIRST_ATTEMPT
    """Ours: the released script knows no repairs, so both tallies were the same."""
    softness: float = 0.1
    """Ours, for `weighted` alone: a success is drawn with weight 1 / (softness + penalty)."""

    def __post_init__(self) -> None:
        if self.keep < 2:
            raise ValueError(f"keep={self.keep} leaves nothing to compare a rollout with; keep 2 or more")
        if self.min_positive < 0 or self.min_negative < 0:
            raise ValueError("a minimum can't be negative; 0 asks for none")
        if self.min_positive + self.min_negative > self.keep:
            raise ValueError(
                f"min_positive={self.min_positive} and min_negative={self.min_negative} don't fit into "
                f"keep={self.keep}; lower a minimum or keep more"
            )
        if not self.softness > 0:
            raise ValueError(f"softness={self.softness} gives a clean success infinite weight; take one above 0")
        # A recipe file gives plain words; a misspelt one must not pass for the default.
        object.__setattr__(self, "positives", PositiveSelection(self.positives))
        object.__setattr__(self, "quality_of", QualityOf(self.quality_of))


def resample(
    positive: Sequence[bool], qualities: Sequence[Quality], rollouts: Sequence[int], config: RocConfig, seed: int
) -> list[int]:
    """Return the indices of exactly `config.keep` rollouts, ascending.

    `rollouts` are their numbers in the group, each a different one: the same rollouts are kept in whatever order they
    come.
    """
    if len(positive) < config.keep:
        raise ValueError(f"{len(positive)} rollouts can't be resampled to {config.keep}; sample more, or keep fewer")
    draw = draws(seed, rollouts)
    shuffled = sorted(range(len(draw)), key=draw.__getitem__)
    positives = [index for index in shuffled if positive[index]]
    negatives = [index for index in shuffled if not positive[index]]
    kept = positives_kept(len(positives), len(negatives), config)
    keys = penalties([qualities[index] for index in positives], config.quality_of)
    if config.positives is PositiveSelection.WEIGHTED:
        softness = config.softness
        keys = [(_arrival(draw[positives[i]], softness + penalty), other) for i, (penalty, other) in enumerate(keys)]
    # The sort is stable: ties stay as they were shuffled.
    ranked = sorted(range(len(positives)), key=keys.__getitem__)
    return sorted([positives[place] for place in ranked[:kept]] + negatives[: config.keep - kept])


def positives_kept(positives: int, negatives: int, config: RocConfig) -> int:
    """How many of the kept are successes: the group's own share of them, a half rounded up, and both minima."""
    total = positives + negatives
    share = (2 * config.keep * positives + total) // (2 * total)
    # Neither minimum can undo the other, since both together fit into `keep`.
    share = max(share, min(config.min_positive, positives))
    return min(share, config.keep - min(config.min_negative, negatives))


def _arrival(draw: int, mean: float) -> float:
    """An exponential time with this mean: the first k to arrive are k draws without replacement by weight 1 / mean."""
    return -log((draw + 0.5) / 2**64) * mean

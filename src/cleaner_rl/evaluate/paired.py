"""Two runs over the same problems: the difference, its two intervals, and how likely chance alone gives one as large.

Problems differ far more than models do, so runs are compared problem by problem. Two questions need two intervals:

- *These problems.* Would the difference be there again, if the same problems were sampled again? Problems are fixed and
  samples vary: the variances within problems are added up, and Student's t has Welch's degrees of freedom. Where both
  runs share their seeds, samples are paired too. One sample more that differs is counted, so that runs without any
  difference don't have an interval of no width.
- *Problems at large.* Would it be there on other problems of this kind? Problems vary too: the paired t interval over
  the problems' differences. It is never narrower than the first one.

The test flips signs: if the two runs were alike, each problem's difference could as well have had the other sign, so
all 2^P signs are equally likely. Rates are fractions of whole numbers, so the sum over all sign flips is counted
exactly, however many problems there are, as long as their common denominator is small; samples are drawn only where it
isn't. `Difference.exact` says so.

`python -m benchmarks.intervals` measures how often both intervals hold the truth.

Limits: only problems that both runs have are compared. The test is about these problems, as the first interval is. The
second one can't know of changes that none of the problems shows: a model that turned around on one problem in fifty
looks unchanged on most draws of thirty. Problems that come in families count as fewer than they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm, sqrt
from statistics import fmean, stdev, variance

import numpy as np

from cleaner_rl.evaluate.bootstrap import LEVEL
from cleaner_rl.evaluate.rates import Rate
from cleaner_rl.evaluate.student import t_quantile
from cleaner_rl.tools import derive_seed

FLIPS = 100_000
LARGEST = 20_000_000
"""Additions that the exact count may take: well below a second."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The second run minus the first, over their common problems."""

    value: float | None
    low: float | None = None
    """Lower end of the interval for problems at large."""
    high: float | None = None
    p: float | None = None
    """p-value of the two-sided sign-flip test: how often equal runs differ at least as much."""
    problems: int = 0
    better: int = 0
    worse: int = 0
    exact: bool = True
    """Whether every sign flip was counted, and not a sample of them."""
    here_low: float | None = None
    """Lower end of the interval for these problems."""
    here_high: float | None = None


def difference(
    before: Mapping[str, Rate],
    after: Mapping[str, Rate],
    *,
    pairs: Mapping[str, Sequence[int]] | None = None,
    seed: int = 0,
    level: float = LEVEL,
) -> Difference:
    """Compare a run's rates by problem with an earlier run's.

    Args:
        before: Right answers by problem, of the first run.
        after: The same of the second run.
        pairs: Where the two runs have the same seeds: by problem, what each pair of samples differs by (-1, 0 or 1).
        seed: Of the sign flips, where there are too many to count.
        level: Of the intervals.

    Examples:
        >>> from cleaner_rl.evaluate import difference
        >>> from cleaner_rl.evaluate.rates import Rate
        >>> before = {"a": Rate(1, 4), "b": Rate(2, 4), "c": Rate(0, 4)}
        >>> found = difference(before, {"a": Rate(3, 4), "b": Rate(2, 4), "c": Rate(1, 4)})
        >>> found.value, found.p
        (0.25, 0.5)
    """
    common = sorted(before.keys() & after.keys())
    gains = [after[problem].share - before[problem].share for problem in common]
    if not gains:
        return Difference(None)
    p, exact = sign_flip(gains, seed=seed)
    value = float(sum(gains, Fraction(0)) / len(gains))
    here = _here([_Varying.of(before[each], after[each], (pairs or {}).get(each, ())) for each in common], level)
    large = max(here, _at_large([float(gain) for gain in gains], level))
    low, high, here_low, here_high = (max(-1.0, min(1.0, value + end)) for end in (-large, large, -here, here))
    several = len(gains) > 1
    return Difference(
        value=value,
        low=low if several else None,
        high=high if several else None,
        p=p,
        problems=len(gains),
        better=sum(gain > 0 for gain in gains),
        worse=sum(gain < 0 for gain in gains),
        exact=exact,
        here_low=here_low,
        here_high=here_high,
    )


@dataclass(frozen=True, slots=True)
class _Varying:
    """What one problem's difference varies by, as its samples vary."""

    parts: tuple[tuple[float, int], ...]
    """Estimated variances that add up, with their degrees of freedom."""
    samples: int

    @classmethod
    def of(cls, before: Rate, after: Rate, pairs: Sequence[int]) -> _Varying:
        samples = min(before.judged, after.judged)
        if len(pairs) > 1:
            return cls(((variance(pairs) / len(pairs), len(pairs) - 1),), samples)
        first, second = before.variance, after.variance
        if first is None or second is None:
            # A single sample doesn't show how it varies; the square of the difference is at least that, on average.
            return cls(((float((after.share - before.share) ** 2), 1),), samples)
        return cls(((first, before.judged - 1), (second, after.judged - 1)), samples)


def _here(problems: Sequence[_Varying], level: float) -> float:
    """Half the width of the interval for these problems."""
    parts = [part for each in problems for part in each.parts]
    total = sum(size for size, _ in parts)
    spread = sum(size**2 / freedom for size, freedom in parts)
    # Where no sample differs from another of its problem, all of them together say how rare that is.
    freedom = int(total**2 / spread) if spread else sum(freedom for _, freedom in parts)
    unseen = 1 / fmean(each.samples for each in problems) ** 2
    return t_quantile(level, max(1, freedom)) * sqrt(total + unseen) / len(problems)


def _at_large(gains: Sequence[float], level: float) -> float:
    """Half the width of the paired t interval over problems."""
    if len(gains) < 2:
        return 0.0
    return t_quantile(level, len(gains) - 1) * stdev(gains) / sqrt(len(gains))


def sign_flip(gains: Sequence[Fraction], *, seed: int = 0, largest: int = LARGEST) -> tuple[float, bool]:
    """Return the two-sided p-value, and whether it is exact."""
    scale = lcm(*(gain.denominator for gain in gains))
    steps = [abs(int(gain * scale)) for gain in gains if gain]
    observed = abs(int(sum(gains, Fraction(0)) * scale))
    if sum(steps) * len(steps) <= largest:
        return _counted(steps, observed), True
    generator = np.random.default_rng(derive_seed(seed, "sign flips"))
    sizes = np.array([step / scale for step in steps])
    sums = np.zeros(FLIPS)
    for size in sizes:
        sums += size * generator.choice((-1.0, 1.0), FLIPS)
    # Sums of floats: those that are as large but for rounding count.
    as_large = int(np.count_nonzero(np.abs(sums) >= observed / scale - 1e-9))
    return (1 + as_large) / (1 + FLIPS), False  # the observed signs are one of them


def _counted(steps: Sequence[int], observed: int) -> float:
    """The share of sign flips whose sum is at least as far from 0: each step splits the distribution in two."""
    reach = sum(steps)
    chances = np.zeros(2 * reach + 1)
    chances[reach] = 1.0
    for step in steps:
        chances = (np.roll(chances, step) + np.roll(chances, -step)) / 2  # what would wrap around is 0
    distances = np.abs(np.arange(-reach, reach + 1))
    return min(1.0, float(chances[distances >= observed].sum()))

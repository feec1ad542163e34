"""Two runs over the same problems: the difference, its interval, and how likely chance alone gives one as large.

Problems differ far more than models do, so runs are compared problem by problem. The interval is that of a share
(`bootstrap`), stretched from [0, 1] to [-1, 1]: an unseen problem may have turned from never to always, or back. The
test flips signs: if the two runs were alike, each problem's difference could as well have had the other sign, so all
2^P signs are equally likely.

Rates are fractions of whole numbers, so the sum over all sign flips is counted exactly, however many problems there
are, as long as their common denominator is small; samples are drawn only where it isn't. `Difference.exact` says so.

Limits: only problems that both runs have are compared. The test is about these problems; the interval about their
kind, whatever the rest of it is like. So it can hold 0 where the test is sure: of thirty problems it is at least 23
points wide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import numpy as np

from cleaner_rl.evaluate.bootstrap import LEVEL, mean
from cleaner_rl.tools import derive_seed

FLIPS = 100_000
LARGEST = 20_000_000
"""Additions that the exact count may take: well below a second."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The second run minus the first, over their common problems."""

    value: float | None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    """p-value of the two-sided sign-flip test: how often equal runs differ at least as much."""
    problems: int = 0
    better: int = 0
    worse: int = 0
    exact: bool = True
    """Whether every sign flip was counted, and not a sample of them."""


def difference(
    before: Mapping[str, Fraction], after: Mapping[str, Fraction], *, seed: int = 0, level: float = LEVEL
) -> Difference:
    """Compare a run's rates by problem with an earlier run's."""
    common = sorted(before.keys() & after.keys())
    gains = [after[problem] - before[problem] for problem in common]
    if not gains:
        return Difference(None)
    p, exact = sign_flip(gains, seed=seed)
    share = mean([float((1 + gain) / 2) for gain in gains], share=True, seed=seed, level=level)
    low, high = (None if end is None else 2 * end - 1 for end in (share.low, share.high))
    value = float(sum(gains, Fraction(0)) / len(gains))
    better, worse = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
    return Difference(value, low, high, p, len(gains), better, worse, exact)


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

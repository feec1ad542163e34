"""Confidence intervals over problems: each problem is drawn with all its samples, because those are not independent.

Every figure is a ratio of two totals over problems; a mean over problems has the denominator 1 for each. One pass draws
the problems once and serves all figures.

Of n problems n-1 are drawn (Rao and Wu): drawing n would make the variance too small by 1/n, a thirtieth for AIME.
Where each problem has the same share, all 0 or all 1, no resampling shows how far the truth may be; there the exact
bound 1 - (α/2)^(1/n) takes its place. It holds for any values in [0, 1], because P(X = 0) is at most 1 - E[X].

Shapes: `(problems, figures)` for totals, `(draws, problems)` for counts, `(draws, figures)` for ratios.

Limits: the problems stand for a larger kind of problem; an interval says nothing about samples of these problems alone.
Below 2 problems there is no interval. Percentiles of few problems are a little narrow (see the tests for how much).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from cleaner_rl.tools import derive_seed

Values: TypeAlias = npt.NDArray[np.float64]

DRAWS = 10_000
LEVEL = 0.95
CELLS = 2_000_000
"""Counts held at a time, so that memory stays bounded for any number of problems."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure, with the interval that covers its true value at the level asked for."""

    value: float | None
    """None where nothing was there to measure."""
    low: float | None = None
    high: float | None = None
    problems: int = 0
    """Problems that it rests on."""


@dataclass(frozen=True, slots=True)
class Figure:
    """What is to be estimated: a ratio of totals over problems, both in the order of the problems."""

    numerators: Sequence[float]
    denominators: Sequence[float] | None = None
    """0 where a problem has nothing to say; None: 1 for each."""
    share: bool = False
    """Whether it lies between 0 and 1, so that a bound exists where the problems don't differ."""


def estimates(figures: Sequence[Figure], *, seed: int = 0, draws: int = DRAWS, level: float = LEVEL) -> list[Estimate]:
    """An estimate for each figure. The seed is the draw's alone; figures with the same problems share their draws."""
    if not figures:
        return []
    numerators = np.array([figure.numerators for figure in figures], np.float64).T
    ones = [1.0] * len(numerators)
    denominators = np.array([figure.denominators or ones for figure in figures], np.float64).T
    ratios = _resampled(numerators, denominators, seed, draws)
    return [
        _estimate(figure, numerators[:, index], denominators[:, index], ratios[:, index], level)
        for index, figure in enumerate(figures)
    ]


def mean(
    values: Sequence[float], *, share: bool = False, seed: int = 0, draws: int = DRAWS, level: float = LEVEL
) -> Estimate:
    """The mean of one value for each problem."""
    return estimates([Figure(values, share=share)], seed=seed, draws=draws, level=level)[0]


def bound(problems: int, level: float = LEVEL) -> float:
    """How far from 0 (or 1) a mean over problems may truly be if all of them are exactly there."""
    tail = (1 - level) / 2
    return float(1 - tail ** (1 / problems))


def _resampled(numerators: Values, denominators: Values, seed: int, draws: int) -> Values:
    problems = len(numerators)
    if problems < 2:
        return np.full((1, numerators.shape[1]), np.nan)
    generator = np.random.default_rng(derive_seed(seed, "bootstrap"))
    shares = np.full(problems, 1 / problems)
    ratios = []
    for first in range(0, draws, step := max(1, CELLS // problems)):
        counts = generator.multinomial(problems - 1, shares, size=min(step, draws - first)).astype(np.float64)
        with np.errstate(invalid="ignore"):  # 0/0: a draw in which no problem has anything to say
            ratios.append((counts @ numerators) / (counts @ denominators))
    return np.concatenate(ratios)


def _estimate(figure: Figure, numerators: Values, denominators: Values, ratios: Values, level: float) -> Estimate:
    total, problems = float(denominators.sum()), int(np.count_nonzero(denominators))
    if not problems:
        return Estimate(None)
    value = float(numerators.sum()) / total
    if problems < 2:
        return Estimate(value, problems=problems)
    each = numerators[denominators > 0] / denominators[denominators > 0]
    if figure.share and (not each.any() or (each == 1).all()):
        reach = bound(problems, level)
        return Estimate(value, max(0.0, value - reach), min(1.0, value + reach), problems)
    low, high = np.nanquantile(ratios, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(value, float(low), float(high), problems)

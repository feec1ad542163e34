"""Confidence intervals over problems: each problem is drawn with all its samples, because those are not independent.

Every figure is a ratio of two totals over problems; a mean over problems has the denominator 1 for each. One pass draws
the problems once and serves all figures of a kind.

Problems that were run don't show what others may be like: thirty without a right answer, drawn again, only ever give 0.
So a share's interval counts one unseen problem more, all 1 for its upper end and all 0 for its lower one. Problems get
random weights, any way to share out the whole being as likely as any other, and the unseen one's weight is Beta(1, n).
This is Gaffke's interval (2005). Where each problem is 0 or 1 it is Clopper and Pearson's: 0 of 30 gives at most
1 - (α/2)^(1/30), which is 11.6 %. It has no jumps: a problem that is a little better moves both ends up a little. In a
ratio of totals the unseen problem is of average size.

A figure without bounds, such as tokens, can have no such problem. There, of n problems n-1 are drawn (Rao and Wu):
drawing n would make the variance too small by 1/n, a thirtieth for AIME.

Shapes: `(problems, figures)` for totals, `(draws, problems)` for weights, `(draws, figures)` for ratios.

Limits: the problems stand for a larger kind of problem; an interval says nothing about samples of these problems alone.
Below 2 problems there is no interval. That Gaffke's holds its level for all shares is proven only where each is 0 or 1;
in the tests it does for others too. Where problems hardly differ it is wider than it need be. Without bounds,
intervals of few problems are a little narrow, and problems that are all the same have none to speak of.
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
    """A figure with its confidence interval at the level asked for."""

    value: float | None
    """None if there was nothing to measure."""
    low: float | None = None
    high: float | None = None
    problems: int = 0
    """Number of problems behind it."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure to be estimated: a ratio of totals over problems, both in the order of the problems."""

    numerators: Sequence[float]
    denominators: Sequence[float] | None = None
    """0 for a problem without data; None: 1 for each."""
    share: bool = False
    """Whether each problem's ratio is between 0 and 1, so that it is known how far off an unseen one may be."""


def estimates(figures: Sequence[Figure], *, seed: int = 0, draws: int = DRAWS, level: float = LEVEL) -> list[Estimate]:
    """Estimate each figure. The seed is for these draws only; figures with the same problems share their draws."""
    if not figures:
        return []
    numerators = np.array([figure.numerators for figure in figures], np.float64).T
    ones = [1.0] * len(numerators)
    denominators = np.array([figure.denominators or ones for figure in figures], np.float64).T
    kinds = {figure.share for figure in figures}
    ratios = {share: _resampled(numerators, denominators, share, seed, draws) for share in kinds}
    return [
        _estimate(figure, numerators[:, index], denominators[:, index], ratios[figure.share][:, index], level)
        for index, figure in enumerate(figures)
    ]


def mean(
    values: Sequence[float], *, share: bool = False, seed: int = 0, draws: int = DRAWS, level: float = LEVEL
) -> Estimate:
    """Return the mean of one value per problem, with its confidence interval."""
    return estimates([Figure(values, share=share)], seed=seed, draws=draws, level=level)[0]


def _resampled(numerators: Values, denominators: Values, share: bool, seed: int, draws: int) -> Values:
    problems = len(numerators)
    if problems < 2:
        return np.full((1, numerators.shape[1]), np.nan)
    generator = np.random.default_rng(derive_seed(seed, "bootstrap"))
    even = np.full(problems, 1 / problems)
    ratios = []
    for first in range(0, draws, step := max(1, CELLS // problems)):
        size = min(step, draws - first)
        if share:
            weights = generator.standard_exponential((size, problems))  # over their sum: uniform among all weights
        else:
            weights = generator.multinomial(problems - 1, even, size).astype(np.float64)
        with np.errstate(invalid="ignore"):  # 0/0: a draw in which no problem has anything to say
            ratios.append((weights @ numerators) / (weights @ denominators))
    return np.concatenate(ratios)


def _estimate(figure: Figure, numerators: Values, denominators: Values, ratios: Values, level: float) -> Estimate:
    total, problems = float(denominators.sum()), int(np.count_nonzero(denominators))
    if not problems:
        return Estimate(None)
    value = float(numerators.sum()) / total
    if problems < 2:
        return Estimate(value, problems=problems)
    least = most = ratios
    if figure.share:
        seen = _evenly(len(ratios)) ** (1 / problems)  # all but the unseen problem's weight
        least, most = seen * ratios, 1 - seen * (1 - ratios)
    tail = (1 - level) / 2
    return Estimate(value, float(np.nanquantile(least, tail)), float(np.nanquantile(most, 1 - tail)), problems)


def _evenly(draws: int) -> Values:
    """A uniform draw's values, each equally often: the ratios are random already."""
    return (np.arange(draws) + 0.5) / draws

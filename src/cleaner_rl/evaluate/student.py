"""Quantiles of Student's t, for whole degrees of freedom, without a library for statistics."""

from __future__ import annotations

from functools import lru_cache
from math import atan, cos, pi, sin, sqrt
from statistics import NormalDist

MANY = 2_000
"""Degrees of freedom from which the normal quantile is right to four digits."""


@lru_cache
def t_quantile(level: float, freedom: int) -> float:
    """Return how far from 0 a t variable is at most with probability `level`, to either side.

    Examples:
        >>> from cleaner_rl.evaluate.student import t_quantile
        >>> round(t_quantile(0.95, 29), 3)
        2.045
    """
    if freedom >= MANY:
        return NormalDist().inv_cdf((1 + level) / 2)
    low, high = 0.0, 1.0
    while _within(high, freedom) < level:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < level else (low, middle)
    return high


def _within(t: float, freedom: int) -> float:
    """The probability of a value between -t and t (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    angle = atan(t / sqrt(freedom))
    odd = freedom % 2
    term = cos(angle) if odd else 1.0
    total = term if freedom > 1 else 0.0
    for step in range(2 + odd, freedom - 1, 2):
        term *= cos(angle) ** 2 * (step - 1) / step
        total += term
    return 2 / pi * (angle + sin(angle) * total) if odd else sin(angle) * total

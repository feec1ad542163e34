"""How long trajectories get, learnt while they run.

An estimate of the Kaplan-Meier kind over bins of tokens: of those that reached a bin, how many ended in it. Those still
running count with the bins that they have reached, so the first to end, which are the short ones, don't make all look
short. Before anything is known, any length up to the longest is as likely as any other.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Numbers: TypeAlias = npt.NDArray[np.float64]

BINS = 64
PRIOR = 8.0
"""As many trajectories as the first guess weighs."""


class Lengths:
    """Of whole trajectories, prompt included; none is longer than `longest`."""

    def __init__(self, longest: int) -> None:
        self.longest = longest
        self._edges: Numbers = np.linspace(0, longest, BINS + 1)
        # Of `PRIOR` trajectories of equally likely lengths, those that reach each bin, and those that end in it.
        self._reached: Numbers = np.linspace(PRIOR, PRIOR / BINS, BINS)
        self._ended: Numbers = np.full(BINS, PRIOR / BINS)
        self._tables: tuple[Numbers, Numbers] | None = None

    def grew(self, before: int, after: int) -> None:
        """A trajectory has grown; it began at 0."""
        first = self._bin(before) + 1 if before else 0
        self._reached[first : self._bin(after) + 1] += 1
        self._tables = None

    def ended(self, tokens: int) -> None:
        """A trajectory, as long as it had grown, is over."""
        self._ended[self._bin(tokens)] += 1
        self._tables = None

    def remaining(self, tokens: int) -> float:
        """How many more a trajectory of this length is expected to get."""
        return float(np.interp(tokens, self._edges, self._learnt()[1]))

    def _learnt(self) -> tuple[Numbers, Numbers]:
        """At each edge: the share that gets there, and how many more tokens those get."""
        if self._tables is None:
            survival = np.append(1.0, np.cumprod(1 - np.minimum(self._ended / self._reached, 1)))
            # What lies under the curve beyond each edge, by trapezoids.
            areas = (survival[:-1] + survival[1:]) / 2 * (self.longest / BINS)
            beyond = np.append(np.cumsum(areas[::-1])[::-1], 0.0)
            self._tables = survival, beyond / np.maximum(survival, 1e-9)
        return self._tables

    def _bin(self, tokens: int) -> int:
        return min(int(tokens * BINS / self.longest), BINS - 1)

"""Right answers of one problem."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Rate:
    """Right answers of one problem."""

    right: int
    judged: int
    """Samples that a grader judged; faults are not among them."""

    @property
    def share(self) -> Fraction:
        """Return the share of right answers among those graded."""
        return Fraction(self.right, self.judged)

    @property
    def variance(self) -> float | None:
        """Return the unbiased estimate of the variance of `share`, as samples vary; None for a single sample."""
        return None if self.judged < 2 else float(self.share * (1 - self.share)) / (self.judged - 1)

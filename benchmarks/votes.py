"""Counts what other tasks say of a correction's changes: whether something besides the error could tell them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple


class Change(NamedTuple):
    """Something that a correction did differently: where, and what it is now."""

    place: Hashable
    now: Hashable


class Votes:
    """Holds the distinct (task, change) pairs of corrections, by place."""

    def __init__(self, seen: Iterable[tuple[Hashable, Sequence[Change]]]) -> None:
        self.at: dict[Hashable, set[tuple[Hashable, Hashable]]] = defaultdict(set)
        for task, changes in seen:
            for change in changes:
                self.at[change.place].add((task, change.now))
        pairs = ((task, Change(place, now)) for place, votes in self.at.items() for task, now in votes)
        told = [k / n for n, k in (self.others(*pair) for pair in pairs) if n]
        self.agreement = sum(told) / len(told) if told else None
        self.prior = (sum(told) + 3.5) / (len(told) + 5)

    def others(self, task: Hashable, change: Change) -> tuple[int, int]:
        """Return how many votes other tasks have at a place, and how many of them agree."""
        votes = [now for other, now in self.at.get(change.place, ()) if other != task]
        return len(votes), votes.count(change.now)

    def kappa(self, task: Hashable, change: Change, prior: float | None = None) -> float:
        """Return how much the other tasks speak for a change: with this prior, or with the estimated one."""
        n, k = self.others(task, change)
        return (k + 2 * (self.prior if prior is None else prior)) / (n + 2)

    def opens(self, task: Hashable, changes: Sequence[Change], prior: float | None = None) -> bool:
        """Return whether the gate opens, so that the clean view of a correction would be trained on."""
        return not changes or sum(self.kappa(task, each, prior) for each in changes) / len(changes) >= 0.5

"""The schedulers that ours is measured against."""

from __future__ import annotations

import random
from collections.abc import Sequence


class Rival:
    """Dispatches each turn as it arrives."""

    def __init__(self) -> None:
        self.inflight: dict[str, int] = {}
        self.where: dict[str, str] = {}
        self._placed: list[tuple[str, str]] = []

    def choose(self, request: str) -> str:
        """The replica of a turn."""
        raise NotImplementedError

    def add(self, replica: str) -> None:
        """See `Scheduler`, as for the others."""
        self.inflight[replica] = 0

    def remove(self, replica: str) -> None:
        """Forget it."""
        del self.inflight[replica]

    def arrive(self, request: str, tokens: int, now: float) -> None:  # noqa: ARG002
        """Place it."""
        replica = self.choose(request)
        self.inflight[replica] += 1
        self.where[request] = replica
        self._placed.append((request, replica))

    def withdraw(self, request: str, now: float) -> None:
        """Never asked for: nothing waits."""

    def release(self, request: str, tokens: int, now: float) -> None:  # noqa: ARG002
        """One less."""
        if self.where[request] in self.inflight:
            self.inflight[self.where[request]] -= 1

    def home(self, request: str) -> str | None:
        """Where it was last."""
        return self.where.get(request)

    def dispatch(self, now: float) -> Sequence[tuple[str, str]]:  # noqa: ARG002
        """All that has arrived."""
        placed, self._placed = self._placed, []
        return placed


class StaticSplit(Rival):
    """The step's list in equal parts, one a replica, as they stand: a prompt's rollouts are together."""

    def __init__(self, requests: int) -> None:
        super().__init__()
        self._requests = requests
        self._names: dict[str, int] = {}

    def choose(self, request: str) -> str:
        """By the order in which trajectories first arrived."""
        index = self._names.setdefault(request, len(self._names))
        return list(self.inflight)[index * len(self.inflight) // self._requests]


class RoundRobin(Rival):
    """Each turn to the next replica, wherever its trajectory was before."""

    def __init__(self) -> None:
        super().__init__()
        self._next = 0

    def choose(self, request: str) -> str:  # noqa: ARG002
        """In turn."""
        self._next += 1
        return list(self.inflight)[(self._next - 1) % len(self.inflight)]


class LeastRequests(Rival):
    """Each turn to the replica with the fewest in flight; among equals, one at random."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)

    def choose(self, request: str) -> str:  # noqa: ARG002
        """The fewest."""
        fewest = min(self.inflight.values())
        return self._random.choice([replica for replica, count in self.inflight.items() if count == fewest])


class StickyLeastRequests(LeastRequests):
    """verl's `GlobalRequestLoadBalancer`: the first turn as above, the others where the first was."""

    def choose(self, request: str) -> str:
        """Where it was, if it is still there."""
        where = self.where.get(request)
        return where if where in self.inflight else super().choose(request)

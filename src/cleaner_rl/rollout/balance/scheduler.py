"""The interface of a scheduler of requests over replicas: it gets events, and says which turn starts now, and where.

It does nothing itself and has no clock, so one scheduler serves our dispatcher, verl's router, and a simulator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Scheduler(Protocol):
    """Decides which turn starts when and where. All times are seconds on one clock. A request is named by its
    trajectory.
    """

    def add(self, replica: str) -> None:
        """Add a replica, new or back again, that is empty."""
        ...

    def remove(self, replica: str) -> None:
        """Remove a replica with all that it held. Turns that ran there arrive again, if their callers want them to."""
        ...

    def arrive(self, request: str, tokens: int, now: float) -> None:
        """Queue a turn that needs a replica; its prompt has this many tokens."""
        ...

    def withdraw(self, request: str, now: float) -> None:
        """Take back a turn that has arrived and was not dispatched."""
        ...

    def release(self, request: str, tokens: int, now: float) -> None:
        """End a dispatched turn, successful or not; `tokens` is the context's length now. More turns may follow."""
        ...

    def home(self, request: str) -> str | None:
        """Return the replica that caches a trajectory's prefix, as far as is known."""
        ...

    def dispatch(self, now: float) -> Sequence[tuple[str, str]]:
        """Return the turns that start now, as (request, replica). Call it after every other method."""
        ...

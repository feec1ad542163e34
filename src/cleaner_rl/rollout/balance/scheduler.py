"""What a scheduler of requests over replicas is: it is told what happens, and says which turn starts now, and where.

It does nothing itself and has no clock, so one scheduler serves our dispatcher, verl's router, and a simulator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Load:
    """A replica's metrics."""

    used: int
    """Tokens of KV cache that running requests hold."""
    running: int
    waiting: int
    """Requests in the engine's own queue, preempted ones among them."""


class Scheduler(Protocol):
    """All times are seconds on one clock, and never run back. A request is named for its trajectory."""

    def add(self, replica: str, room: int) -> None:
        """A replica is there, or there again, empty, with a KV cache of `room` tokens."""
        ...

    def remove(self, replica: str) -> None:
        """It is gone, with all that it held. Turns that ran there arrive again, if their callers want them to."""
        ...

    def arrive(self, request: str, tokens: int, now: float) -> None:
        """A turn wants a replica; its prompt has this many tokens."""
        ...

    def withdraw(self, request: str, now: float) -> None:
        """A turn that has arrived, and wasn't dispatched, is wanted no more."""
        ...

    def release(self, request: str, tokens: int, now: float) -> None:
        """A dispatched turn is over, well or not; `tokens` is the context's length now. Another may follow or not."""
        ...

    def home(self, request: str) -> str | None:
        """Where a trajectory's prefix is cached, as far as is known."""
        ...

    def observe(self, replica: str, load: Load, now: float) -> None:
        """A replica's metrics have been read."""
        ...

    def dispatch(self, now: float) -> Sequence[tuple[str, str]]:
        """The turns that start now, as (request, replica). To be asked after anything was told."""
        ...

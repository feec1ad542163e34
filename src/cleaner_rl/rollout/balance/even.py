"""Our scheduler: the work left is kept even over the replicas, and trajectories stay where their prefix is cached as
far as that allows.

How long a trajectory gets is not known, and those that have come equally far are alike. What it has left to do is
therefore expected, from the lengths of the others (`Lengths`): tokens left x what a step with it costs.

- A new trajectory starts where the least is left.
- A following turn stays where its prefix is. It moves to where the least is left if its own replica is behind the mean
  and would be ahead of the other's even without it: a prefix is computed again only where it evens things out. That is
  what spreads the last and longest.

No turn is held back while there is a replica: an engine queues by itself what its KV cache can't hold, and knows better
what that is (`docs/internals/balance.md` has what holding back costs). What the scheduler needs is its own count of
turns. A trajectory that has not come back for `patience` seconds is taken for ended. Nothing here is random. Limits:
replicas are taken for equally fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cleaner_rl.rollout.balance.lengths import Lengths


@dataclass(frozen=True, slots=True)
class EvenConfig:
    """Settings of the scheduler. The defaults were chosen on the simulator's seeds 0 to 3 (`benchmarks.balance`)."""

    longest: int = 32_768
    """Tokens of the longest trajectory; the engine's `max_model_len`."""
    sequence: int = 150
    """A sequence in a step costs as much as attending to this many tokens."""
    behind: float = 1.2
    """A turn moves away from a replica whose remaining work is more than this many times the mean."""
    patience: float = 60.0


@dataclass(slots=True)
class _Trajectory:
    tokens: int = 0
    home: str | None = None
    work: float = 0.0
    """Expected to be left when its last turn arrived."""
    idle_since: float = 0.0


class EvenScheduler:
    """Balances the expected work that is left on each replica; see `Scheduler` and this module's text."""

    def __init__(self, config: EvenConfig) -> None:
        self.config = config
        self.moves = 0
        self._lengths = Lengths(config.longest)
        self._work: dict[str, float] = {}
        """By replica, of the turns that run there."""
        self._trajectories: dict[str, _Trajectory] = {}
        self._waiting: dict[str, None] = {}
        """In the order of arrival."""
        self._idle: dict[str, None] = {}
        """In the order in which they became so."""

    def add(self, replica: str) -> None:
        """Add an empty replica."""
        self._work[replica] = 0.0

    def remove(self, replica: str) -> None:
        """Remove a replica; its trajectories then have no home."""
        del self._work[replica]
        for known in self._trajectories.values():
            if known.home == replica:
                known.home = None

    def home(self, request: str) -> str | None:
        """Return the replica that caches its prefix, as far as is known."""
        known = self._trajectories.get(request)
        return known.home if known else None

    def arrive(self, request: str, tokens: int, now: float) -> None:
        """Queue a turn."""
        self._forget(now)
        known = self._trajectories.setdefault(request, _Trajectory())
        self._grow(known, tokens)
        left = self._lengths.remaining(tokens)
        known.work = left * (self.config.sequence + tokens + left / 2)
        self._idle.pop(request, None)
        self._waiting[request] = None

    def withdraw(self, request: str, now: float) -> None:
        """Take a turn out of the queue; it may arrive again."""
        self._waiting.pop(request, None)
        self._rest(request, now)

    def release(self, request: str, tokens: int | None, now: float) -> None:
        """End a turn; its context stays cached. Without `tokens`, its length is read when the next turn arrives."""
        known = self._trajectories[request]
        if tokens is not None:
            self._grow(known, tokens)
        if known.home is not None:
            self._work[known.home] -= known.work
        self._rest(request, now)

    def dispatch(self, now: float) -> Sequence[tuple[str, str]]:  # noqa: ARG002 - decides by what it was told
        """Return the turns that start now: all that wait, if there is a replica."""
        placed: list[tuple[str, str]] = []
        while self._work and self._waiting:
            request = next(iter(self._waiting))
            del self._waiting[request]
            placed.append((request, self._start(request)))
        return placed

    def _start(self, request: str) -> str:
        known = self._trajectories[request]
        where = self._place(known)
        self.moves += known.home not in (None, where)
        known.home = where
        self._work[where] += known.work
        return where

    def _place(self, known: _Trajectory) -> str:
        least = min(self._work, key=self._work.__getitem__)
        if known.home is None:
            return least
        here = self._work[known.home]
        mean = sum(self._work.values()) / len(self._work)
        behind = here > self.config.behind * mean and here - self._work[least] > known.work
        return least if behind else known.home

    def _grow(self, known: _Trajectory, tokens: int) -> None:
        if tokens > known.tokens:
            self._lengths.grew(known.tokens, tokens)
            known.tokens = tokens

    def _rest(self, request: str, now: float) -> None:
        self._trajectories[request].idle_since = now
        self._idle[request] = None

    def _forget(self, now: float) -> None:
        """Those that were idle for too long have ended."""
        while self._idle:
            request = next(iter(self._idle))
            known = self._trajectories[request]
            if known.idle_since + self.config.patience > now:
                return
            del self._idle[request], self._trajectories[request]
            self._lengths.ended(known.tokens)

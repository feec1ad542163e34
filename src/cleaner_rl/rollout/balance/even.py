"""Our scheduler: the work left is kept even over the replicas, trajectories stay where their prefix is cached as far as
that allows, and no replica runs out of KV cache.

How long a trajectory gets is not known, and those that have come equally far are alike. What it has left to do is
therefore expected, from the lengths of the others (`Lengths`): tokens left x what a step with it costs.

- A new trajectory starts where the least is left, if what all trajectories there will hold at their peak fits. If it
  doesn't fit, it waits, and those behind it. Nothing else is held back: a long one that starts late ends last.
- A following turn stays where its prefix is. It moves to where the least is left if its own replica is behind the mean
  and would be ahead of the other's even without it: a prefix is computed again only where it evens things out. That is
  what spreads the last and longest.
- No turn starts where the running ones will need the KV cache before they end. The longest have the first choice.

What it needs is its own count of turns, and the replicas' metrics where there are any. A trajectory that has not come
back for `patience` seconds is taken for ended. Nothing here is random. Limits: replicas are taken for equally fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cleaner_rl.rollout.balance.lengths import Lengths
from cleaner_rl.rollout.balance.scheduler import Load


@dataclass(frozen=True, slots=True)
class EvenConfig:
    """Settings of the scheduler. The defaults were chosen on the simulator's seeds 0 to 3 (`benchmarks.balance`)."""

    longest: int = 32_768
    """Tokens of the longest trajectory; the engine's `max_model_len`."""
    sequence: int = 150
    """A sequence in a step costs as much as attending to this many tokens."""
    behind: float = 1.2
    """A turn moves away from a replica whose remaining work is more than this many times the mean."""
    deviations: float = 2.0
    """Standard deviations that must fit on top of the expected peak."""
    patience: float = 60.0


@dataclass(slots=True)
class _Trajectory:
    tokens: int = 0
    home: str | None = None
    work: float = 0.0
    """Expected to be left when its last turn arrived."""
    idle_since: float = 0.0
    unseen: bool = False
    """Whether its last turn ended without a report of its length."""


@dataclass(slots=True)
class _Replica:
    room: int
    running: dict[str, int] = field(default_factory=dict)
    """Tokens of each turn when it was dispatched."""
    idle: dict[str, int] = field(default_factory=dict)
    """Of trajectories that may return."""
    work: float = 0.0
    """Of those that run."""
    held: int = 0
    """Tokens of those that run, as they were dispatched."""
    used: int = 0
    """As last measured, with what has come and gone since."""


class EvenScheduler:
    """Balances the expected work that is left on each replica; see `Scheduler` and this module's text."""

    def __init__(self, config: EvenConfig) -> None:
        self.config = config
        self.moves = 0
        self._lengths = Lengths(config.longest)
        self._turn = config.longest / 16
        """The mean of what a turn samples, learnt as they end."""
        self._replicas: dict[str, _Replica] = {}
        self._trajectories: dict[str, _Trajectory] = {}
        self._new: dict[str, int] = {}
        self._following: dict[str, int] = {}
        self._idle: dict[str, None] = {}
        """In the order in which they became so."""

    def add(self, replica: str, room: int) -> None:
        """Add an empty replica."""
        self._replicas[replica] = _Replica(room)

    def remove(self, replica: str) -> None:
        """Remove a replica; its trajectories then have no home."""
        del self._replicas[replica]
        for known in self._trajectories.values():
            if known.home == replica:
                known.home = None

    def home(self, request: str) -> str | None:
        """Return the replica that caches its prefix, as far as is known."""
        known = self._trajectories.get(request)
        return known.home if known else None

    def arrive(self, request: str, tokens: int, now: float) -> None:
        """Queue a turn: first turns and later turns have a queue each."""
        self._forget(now)
        queue = self._following if request in self._trajectories else self._new
        known = self._trajectories.setdefault(request, _Trajectory())
        if known.unseen:
            self._learn(tokens - known.tokens)
            known.unseen = False
        self._grow(known, tokens)
        left = self._lengths.remaining(tokens)
        known.work = left * (self.config.sequence + tokens + left / 2)
        self._idle.pop(request, None)
        if known.home is not None:
            self._replicas[known.home].idle.pop(request, None)
        queue[request] = tokens

    def withdraw(self, request: str, now: float) -> None:
        """Take a turn out of the queue; it may arrive again."""
        self._new.pop(request, None)
        self._following.pop(request, None)
        self._rest(request, now)

    def release(self, request: str, tokens: int | None, now: float) -> None:
        """End a turn; its context stays cached. Without `tokens`, its length is read when the next turn arrives."""
        known = self._trajectories[request]
        if tokens is None:
            tokens, known.unseen = known.tokens, True
        else:
            self._learn(tokens - known.tokens)
        self._grow(known, tokens)
        if known.home is not None:
            replica = self._replicas[known.home]
            replica.held -= replica.running.pop(request)
            replica.work -= known.work
            replica.used = max(0, replica.used - tokens)
        self._rest(request, now)

    def observe(self, replica: str, load: Load, now: float) -> None:
        """Replace our own count with what the replica really uses."""
        self._replicas[replica].used = load.used
        self._forget(now)

    def dispatch(self, now: float) -> Sequence[tuple[str, str]]:  # noqa: ARG002 - decides by what it was told
        """Return the turns that start now: later turns, the longest first; then first turns, in order."""
        placed: list[tuple[str, str]] = []
        if not self._replicas:
            return placed
        for request in sorted(self._following, key=lambda each: (-self._following[each], each)):
            where = self._place(request, self._following[request])
            if where is not None:
                self._start(request, self._following.pop(request), where)
                placed.append((request, where))
        while self._new:
            request, tokens = next(iter(self._new.items()))
            where = self._least()
            if not (self._fits(where, tokens) and self._peak_fits(where, tokens)):
                break
            self._start(request, self._new.pop(request), where)
            placed.append((request, where))
        return placed

    def _place(self, request: str, tokens: int) -> str | None:
        """Where a following turn runs; None if it has to wait."""
        known = self._trajectories[request]
        least = self._least()
        room_there = self._fits(least, tokens)
        if known.home is not None and self._fits(known.home, tokens):
            here = self._replicas[known.home].work
            mean = sum(replica.work for replica in self._replicas.values()) / len(self._replicas)
            behind = here > self.config.behind * mean and here - self._replicas[least].work > known.work
            return least if behind and room_there else known.home
        return least if room_there else None

    def _least(self) -> str:
        return min(self._replicas, key=lambda name: self._replicas[name].work)

    def _fits(self, name: str, tokens: int) -> bool:
        """Whether this turn and those that run there have room until they end."""
        replica = self._replicas[name]
        growth = (len(replica.running) + 1) * self._turn
        return not replica.running or max(replica.used, replica.held) + tokens + growth <= replica.room

    def _peak_fits(self, name: str, tokens: int) -> bool:
        replica = self._replicas[name]
        held = [*replica.running.values(), *replica.idle.values()]
        return not replica.running or self._lengths.peak([*held, tokens], self.config.deviations) <= replica.room

    def _start(self, request: str, tokens: int, where: str) -> None:
        known = self._trajectories[request]
        self.moves += known.home not in (None, where)
        known.home = where
        replica = self._replicas[where]
        replica.running[request] = tokens
        replica.work += known.work
        replica.held += tokens
        replica.used += tokens

    def _learn(self, sampled: int) -> None:
        self._turn += (max(0, sampled) - self._turn) / 64

    def _grow(self, known: _Trajectory, tokens: int) -> None:
        if tokens > known.tokens:
            self._lengths.grew(known.tokens, tokens)
            known.tokens = tokens

    def _rest(self, request: str, now: float) -> None:
        known = self._trajectories[request]
        known.idle_since = now
        self._idle[request] = None
        if known.home is not None:
            self._replicas[known.home].idle[request] = known.tokens

    def _forget(self, now: float) -> None:
        """Those that were idle for too long have ended."""
        while self._idle:
            request = next(iter(self._idle))
            known = self._trajectories[request]
            if known.idle_since + self.config.patience > now:
                return
            del self._idle[request], self._trajectories[request]
            self._lengths.ended(known.tokens)
            if known.home is not None:
                del self._replicas[known.home].idle[request]

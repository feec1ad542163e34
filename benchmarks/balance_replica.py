"""One simulated replica: vLLM's scheduling as far as it decides speed.

Continuous batching, first come first served. A sequence runs if its whole context fits beside the others. When a step
finds no room, what is cached and in nobody's use goes first (the least recently used, from its end), then the sequence
that was admitted last is preempted: it goes to the front of the queue, and what of its cache is gone by the time that
it is admitted again is computed again. After a turn the context stays cached until its room is needed, also where the
trajectory never returns.

Moves from event to event: between two of them the batch is the same, and its steps take a time in closed form. Left
out: blocks (a token takes its own room and no more), and the overlap of prefill and decode (a prefill holds up the
steps of all the others for as long as it takes; chunks would spread the same work).
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from dataclasses import dataclass, field

from benchmarks.balance_world import ROOM, SEQUENCES, Speed


@dataclass(slots=True)
class Request:
    """A turn under way."""

    trajectory: int
    context: int
    """Tokens that must be in the cache before its next token: prompt and what it has sampled."""
    left: int
    """Tokens still to sample."""
    seen: int = 0
    """How much of the context has been in a cache before, on any replica."""
    started: int = 0
    """The replica's count of steps when it began to run."""


@dataclass(slots=True)
class Replica:
    """Its state is that of `clock`, a moment between two steps."""

    speed: Speed
    room: int = ROOM
    clock: float = 0.0
    steps: int = 0
    used: int = 0
    """Tokens of KV cache that running sequences hold."""
    busy: float = 0.0
    preemptions: int = 0
    recomputed: int = 0
    """Tokens that had been in a cache before, here or elsewhere, and were computed again."""
    running: dict[int, Request] = field(default_factory=dict)
    waiting: deque[Request] = field(default_factory=deque)
    cached: OrderedDict[int, int] = field(default_factory=OrderedDict)
    """Tokens by trajectory, in nobody's use; the least recently used first."""
    _spare: int = 0
    """The sum of `cached`."""
    _ends: list[tuple[int, int]] = field(default_factory=list)
    """A heap of (step, trajectory). A preempted one leaves a stale entry."""

    def submit(self, request: Request, now: float) -> None:
        """Hand in a turn; it is looked at when the step under way is over."""
        if request.context + request.left > self.room:
            raise ValueError(f"{request.context + request.left} tokens never fit in a room of {self.room}")
        self._run_until(now)
        self.waiting.append(request)
        self._admit()

    def next_end(self) -> float | None:
        """When something changes by itself: a turn ends, or room runs out."""
        steps = self._steps_to_event()
        return None if steps is None else self.clock + self.speed.decode(steps, len(self.running), self.used)

    def advance(self) -> list[int]:
        """Go to that moment. Returns the trajectories whose turn has ended."""
        steps = self._steps_to_event()
        assert steps is not None
        self._run(steps)
        ended = []
        while self._ends and self._ends[0][0] <= self.steps:
            end, trajectory = heapq.heappop(self._ends)
            request = self.running.get(trajectory)
            if request is not None and request.started + request.left == end:
                self._leave(request)
                ended.append(trajectory)
        while self.running and self.used + len(self.running) > self.room:
            self._preempt()
        self._admit()
        return ended

    def _steps_to_event(self) -> int | None:
        if not self.running:
            return None
        while True:
            end, trajectory = self._ends[0]
            request = self.running.get(trajectory)
            if request is not None and request.started + request.left == end:
                break
            heapq.heappop(self._ends)
        return min(end - self.steps, (self.room - self.used) // len(self.running))

    def _run_until(self, now: float) -> None:
        if now <= self.clock:
            return
        steps = self._steps_to_event()
        if steps is None:
            self.clock = now
        else:
            self._run(min(steps, self.speed.steps_within(now - self.clock, len(self.running), self.used)))

    def _run(self, steps: int) -> None:
        seconds = self.speed.decode(steps, len(self.running), self.used)
        self.clock += seconds
        self.busy += seconds
        self.steps += steps
        self.used += steps * len(self.running)
        self._evict()

    def _admit(self) -> None:
        while self.waiting and len(self.running) < SEQUENCES:
            request = self.waiting[0]
            # One more step must fit too, or it would be preempted at once.
            if self.used + request.context + len(self.running) + 1 > self.room:
                return
            self.waiting.popleft()
            hit = self.cached.pop(request.trajectory, 0)
            self._spare -= hit
            self.recomputed += request.seen - hit
            seconds = self.speed.prefill(hit, request.context)
            self.clock += seconds
            self.busy += seconds
            self.used += request.context
            self._evict()
            request.started = self.steps
            self.running[request.trajectory] = request
            heapq.heappush(self._ends, (self.steps + request.left, request.trajectory))

    def _leave(self, request: Request) -> None:
        """Out of the batch, its context cached."""
        done = self.steps - request.started
        request.context += done
        request.seen = request.context
        request.left -= done
        del self.running[request.trajectory]
        self.used -= request.context
        self.cached[request.trajectory] = request.context
        self._spare += request.context

    def _preempt(self) -> None:
        request = self.running[next(reversed(self.running))]
        self._leave(request)
        self.waiting.appendleft(request)
        self.preemptions += 1

    def _evict(self) -> None:
        while self._spare > self.room - self.used:
            trajectory, tokens = self.cached.popitem(last=False)
            over = self._spare - (self.room - self.used)
            if tokens > over:
                self.cached[trajectory] = tokens - over
                self.cached.move_to_end(trajectory, last=False)
            self._spare -= min(tokens, over)

"""Two lines below which our scheduler can't be expected to come, beside the bound that nobody reaches."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from benchmarks.balance_rivals import Rival
from benchmarks.balance_world import ROOM, Script, Speed


def even_pace(work: Sequence[Script], speed: Speed, replicas: int) -> float:
    """Seconds if all trajectories keep step with each other, perfectly divided, nothing computed twice, and no waits.

    Who can't tell trajectories of one length apart serves them alike, and then the replicas make as many steps as the
    longest has tokens. Serving the longer ones faster, at the cost of all, would gain 1 % at most
    (`docs/internals/balance.md`).
    """
    steps = max(script.sampled for script in work)
    return speed.step * steps + sum(_paid(script, speed) for script in work) / replicas


class Oracle(Rival):
    """Knows each length: the long ones share few replicas from the start, the short ones fill the others.

    Within a replica the longest start first, and none starts unless all that run there fit at full length. A good plan
    that is never changed, not the best there is.
    """

    def __init__(self, work: Sequence[Script], speed: Speed, replicas: int, room: int = ROOM) -> None:
        super().__init__()
        self._work = work
        self._room = [room] * replicas
        self._waiting = [deque(indices) for indices in _plan(work, speed, replicas, room)]
        self._place = {str(index): place for place, queue in enumerate(self._waiting) for index in queue}
        self._turns = [0] * len(work)

    def arrive(self, request: str, tokens: int, now: float) -> None:
        """A first turn waits for its start; the others go on."""
        if self._turns[int(request)]:
            super().arrive(request, tokens, now)

    def choose(self, request: str) -> str:
        """By plan."""
        return str(self._place[request])

    def release(self, request: str, tokens: int, now: float) -> None:
        """After its last turn, its room is free."""
        super().release(request, tokens, now)
        script = self._work[int(request)]
        self._turns[int(request)] += 1
        if self._turns[int(request)] == len(script.turns):
            self._room[self._place[request]] += script.tokens

    def dispatch(self, now: float) -> Sequence[tuple[str, str]]:
        """Start what fits."""
        for place, queue in enumerate(self._waiting):
            while queue and self._work[queue[0]].tokens <= self._room[place]:
                index = queue.popleft()
                self._room[place] -= self._work[index].tokens
                super().arrive(str(index), 0, now)
        return super().dispatch(now)


def _plan(work: Sequence[Script], speed: Speed, replicas: int, room: int) -> list[list[int]]:
    """The longest first, a replica after the other, each as full as the least common end allows."""
    order = sorted(range(len(work)), key=lambda index: -work[index].sampled)
    paid = [_paid(script, speed) for script in work]
    attended = [script.attended() for script in work]

    def fill(latest: float) -> list[list[int]]:
        parts: list[list[int]] = []
        held = context = second = 0
        seconds = ends = 0.0
        for index in order:
            script = work[index]
            if parts:
                held, context, seconds = held + script.tokens, context + attended[index], seconds + paid[index]
                # What doesn't fit at first begins when the first are through, which adds its steps to theirs.
                second = second or (script.sampled if held > room else 0)
                steps = max(work[parts[-1][0]].sampled + second, round(2 * context / room))
                ends = seconds + speed.step * steps
            if parts and ends <= latest:
                parts[-1].append(index)
            else:
                parts.append([index])
                held, context, seconds, second = script.tokens, attended[index], paid[index], 0
        return parts

    low, high = 0.0, sum(paid) + speed.step * sum(script.sampled for script in work)
    while high - low > 0.01 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if len(fill(middle)) <= replicas else (middle, high)
    parts = fill(high)
    return parts + [[] for _ in range(replicas - len(parts))]


def _paid(script: Script, speed: Speed) -> float:
    """Seconds that don't depend on who shares its steps."""
    return script.sampled * speed.sequence + script.attended() * speed.context + script.prefilled(speed)

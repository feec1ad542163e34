"""Runs a step's trajectories on simulated replicas under a scheduler, and says how long it took.

All trajectories ask for their first turn at the start, as an agent loop's do. The scheduler hears what it would hear in
earnest: a turn that wants a replica and how long its prompt is, that the turn is over and how long the context is then.
It doesn't hear how long a turn will be, nor whether another follows.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.balance_replica import Replica, Request
from benchmarks.balance_world import REPLICAS, ROOM, Script, Speed
from cleaner_rl.rollout.balance import Scheduler


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a schedule went."""

    makespan: float
    preemptions: int
    recomputed: int
    """Tokens that had been in a cache and were computed again: after preemptions, evictions and moves."""
    busy: float
    """Seconds that replicas worked, in all."""
    first_idle: float
    """When the first replica had worked for the last time."""


def simulate(
    work: Sequence[Script], scheduler: Scheduler, speed: Speed, replicas: int = REPLICAS, room: int = ROOM
) -> Outcome:
    """Run all of it."""
    pool = [Replica(speed, room) for _ in range(replicas)]
    for place in range(replicas):
        scheduler.add(str(place))
    # (time, order, what): an index of `work` asks for its turn, or a replica's event (~place).
    events: list[tuple[float, int, int]] = []
    order = 0

    def push(time: float, what: int) -> None:
        nonlocal order
        order += 1
        heapq.heappush(events, (time, order, what))

    due: list[float | None] = [None] * replicas
    turn = [0] * len(work)
    length = [0] * len(work)
    last = [0.0] * replicas
    left = len(work)

    def reschedule(place: int) -> None:
        due[place] = pool[place].next_end()
        if due[place] is not None:
            push(due[place], ~place)  # type: ignore[arg-type]

    def dispatch(now: float) -> None:
        for name, where in scheduler.dispatch(now):
            index, place = int(name), int(where)
            script = work[index].turns[turn[index]]
            request = Request(index, length[index] + script.read, script.sampled, seen=length[index])
            pool[place].submit(request, now)
            reschedule(place)

    for index, script in enumerate(work):
        scheduler.arrive(str(index), script.turns[0].read, 0.0)
    dispatch(0.0)
    now = 0.0
    while left:
        now, _, what = heapq.heappop(events)
        if what < 0:
            place = ~what
            if due[place] != now:
                continue
            for index in pool[place].advance():
                done = work[index].turns[turn[index]]
                length[index] += done.read + done.sampled
                turn[index] += 1
                scheduler.release(str(index), length[index], now)
                if turn[index] < len(work[index].turns):
                    push(now + done.wait, index)
                else:
                    left -= 1
                    last[place] = now
            reschedule(place)
        else:
            script = work[what]
            scheduler.arrive(str(what), length[what] + script.turns[turn[what]].read, now)
        dispatch(now)
    return Outcome(
        makespan=now,
        preemptions=sum(replica.preemptions for replica in pool),
        recomputed=sum(replica.recomputed for replica in pool),
        busy=sum(replica.busy for replica in pool),
        first_idle=min(last),
    )

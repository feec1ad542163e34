"""The queue between HTTP and the node, and the calls of one HTTP request as they pass through it.

A `PendingRequest` is the calls of one HTTP request: one for a single run, thousands for a batch. It joins the queue as
a whole or not at all, so a request is either taken or refused with 429. The queue gives free slots to tenants in turn,
and to a tenant's requests in turn, so that neither another caller nor one's own large batch holds up a single call. A
call that waits is an item of a list, not a task: 45,000 waiting calls cost their text and little more.

Each call of a request ends in exactly one result, whatever happens: it ran, its deadline passed, the node drains, or
the caller left (then nobody gets it, but it is counted and logged).
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, Generic, Self, TypeVar

from cleaner_sandbox.node.shares import Shares
from cleaner_sandbox.protocol.wire import BROKEN, DRAINING, EXPIRED
from cleaner_sandbox.service.http import GoneError, HttpError
from cleaner_sandbox.service.tenants import Tenant

T = TypeVar("T")

logger = logging.getLogger(__name__)

UNREAD_BYTES: Final = 16_777_216
"""Results of one request that the caller has not read yet; above it, none of its calls start."""
AT_ONCE: Final = 256
"""Results that are made or given out before the event loop may serve others."""
BYTES_AT_ONCE: Final = 1_048_576
"""The same in bytes; one more result may be larger."""
GONE: Final = "gone"
"""Why a request stopped when nobody waits for its results any more."""


class Queue:
    """Calls that wait, bounded in number and bytes, and the slots they wait for.

    Of both bounds a part is kept for each tenant: a queue that one of them has filled still takes calls of the others.
    """

    def __init__(self, slots: int, most_calls: int, most_bytes: int, tenants: int) -> None:
        self.slots = slots
        self.calls = Shares(most_calls, tenants)
        """That wait."""
        self.held = Shares(most_bytes, tenants)
        """Bytes of requests that are being answered, and of results that are not read yet."""
        self.tasks: set[asyncio.Task[Any]] = set()
        """Of calls that run."""
        self.draining = False
        self._turns: deque[Tenant] = deque()
        """Tenants with waiting requests."""
        self._requests: defaultdict[Tenant, OrderedDict[PendingRequest[Any], None]] = defaultdict(OrderedDict)
        """Of each tenant, those with calls that have not started, the next to be served first."""
        self._seconds = 0.05
        """Of a run, lately: tells how long a full queue takes to get shorter."""

    def check(self, tenant: Tenant, calls: int, size: int) -> None:
        """Raise the `HttpError` with which a request is turned away, if it is."""
        if self.draining:
            raise HttpError(503, DRAINING, "The node is shutting down.", ((b"retry-after", b"1"),))
        most = self.calls.most_of_one
        if tenant.most_waiting is not None:  # more than could ever be taken is no matter of coming back later
            most = min(most, tenant.most_waiting + min(self.slots, tenant.most_running or self.slots))
        if calls > most:
            raise HttpError(413, "too_many_calls", f"A batch may hold at most {most} calls; send several.")
        to_wait = max(0, calls - self._startable(tenant))
        above_quota = tenant.most_waiting is not None and self.calls.of(tenant.name) + to_wait > tenant.most_waiting
        taken = self.calls.has_room(tenant.name, to_wait) and (
            not self.held.held or self.held.has_room(tenant.name, size)
        )
        if above_quota or not taken:
            message = "Your share of the queue is full." if above_quota else "The queue is full."
            raise HttpError(429, "queue_full", message, ((b"retry-after", str(self.retry_after).encode()),))

    def _startable(self, tenant: Tenant) -> int:
        """How many of a tenant's calls would find a slot at once: none while others wait for one."""
        free = self.slots - self.running
        return free if tenant.most_running is None else min(free, tenant.most_running - tenant.running)

    @property
    def waiting(self) -> int:
        """Calls that wait."""
        return self.calls.held

    @property
    def running(self) -> int:
        """Calls that run."""
        return len(self.tasks)

    @property
    def bytes(self) -> int:
        """Bytes of requests and of results that are not read yet."""
        return self.held.held

    @property
    def retry_after(self) -> int:
        """Seconds in which about half of what waits now will have started."""
        return max(1, min(30, round(self.waiting * self._seconds / self.slots / 2)))

    def join(self, request: PendingRequest[T]) -> None:
        """Let a request wait; `check` comes first, `pump` after."""
        tenant = request.tenant
        self.calls.take(tenant.name, request.waiting)
        self.held.take(tenant.name, request.size)
        self._requests[tenant][request] = None
        if tenant not in self._turns:
            self._turns.append(tenant)

    def forget(self, request: PendingRequest[T], calls: int) -> None:
        """Take out the waiting calls of a request: they will not be started any more."""
        self.calls.take(request.tenant.name, -calls)
        self._requests[request.tenant].pop(request, None)

    def started(self, tenant: Tenant, task: asyncio.Task[Any]) -> None:
        """A call goes from waiting to running."""
        self.calls.take(tenant.name, -1)
        self.tasks.add(task)
        tenant.running += 1

    def ended(self, tenant: Tenant, task: asyncio.Task[Any], seconds: float) -> None:
        """A run is over; its slot is free."""
        self._seconds += 0.05 * (seconds - self._seconds)
        self.tasks.remove(task)
        tenant.running -= 1
        self.pump()

    def drain(self) -> None:
        """Take no more, and give back what has not started: another node can have it sooner."""
        self.draining = True
        for tenant in self._turns:
            for request in list(self._requests[tenant]):
                request.answer_waiting(DRAINING)

    def pump(self) -> None:
        """Start calls while there are free slots."""
        idle = 0
        while self.running < self.slots and idle < len(self._turns):
            tenant = self._turns[0]
            if not self._requests[tenant]:
                self._turns.popleft()
                continue
            self._turns.rotate(-1)
            idle = 0 if tenant.may_run and self._start_one(tenant) else idle + 1

    def _start_one(self, tenant: Tenant) -> bool:
        requests = self._requests[tenant]
        for _ in range(len(requests)):
            request, _ = requests.popitem(last=False)
            may_start = request.may_start
            if may_start:
                request.start()
            if request.waiting:
                requests[request] = None
            if may_start:
                return True
        return False


class PendingRequest(Generic[T]):
    """The calls of one HTTP request, and their results in the order in which they end, or of the calls (`in_order`).

    `gone` returns when the caller has left. `execute` runs the call with a given index, `unrun` makes the result of one
    that has not run to its end, and `finished` hears of each call's end once, with the seconds that it waited and no
    result if the caller left first. `within` is the time for all of it, `start_within` for the calls to start.
    `size_of` tells the bytes of a result, which count until it is read: send it inside of the `with` statement that
    this is to be used in. Leaving that kills what still runs.
    """

    def __init__(
        self,
        queue: Queue,
        tenant: Tenant,
        gone: Callable[[], Coroutine[object, object, None]],
        calls: int,
        size: int,
        execute: Callable[[int], Coroutine[object, object, T]],
        unrun: Callable[[int, str], T],
        finished: Callable[[int, T | None, float], None],
        within: float | None = None,
        start_within: float | None = None,
        *,
        size_of: Callable[[T], int],
        in_order: bool = False,
    ) -> None:
        self.tenant, self.size, self.waiting = tenant, size, calls
        self._queue, self._gone_later, self._execute = queue, gone, execute
        self._unrun, self._finished, self._within, self._start_within = unrun, finished, within, start_within
        self._size_of, self._in_order = size_of, in_order
        self._next = 0
        self._left = calls
        self._joined = time.monotonic()
        self._running: dict[int, asyncio.Task[T]] = {}
        self._results: OrderedDict[int, tuple[T, int]] = OrderedDict()
        """Not given out yet, with their sizes."""
        self._given = 0
        """How many are."""
        self._given_bytes = 0
        """Of those given out last: they are being sent."""
        self._unread = 0
        """Bytes of all these."""
        self._wake: asyncio.Future[None] | None = None
        self._stopped: str | None = None
        self._deadlines: list[asyncio.TimerHandle] = []
        self._gone = False
        self._error: Exception | None = None
        """Why a result could not be made: then the whole request fails."""

    @property
    def may_start(self) -> bool:
        """Whether the caller keeps up with reading."""
        return self._unread < UNREAD_BYTES

    @property
    def complete(self) -> bool:
        """Whether all results have been given out."""
        return not self._left and not self._results

    def start(self) -> None:
        """Start the next call; the queue calls this when it has a slot."""
        index = self._next
        task = asyncio.get_running_loop().create_task(self._execute(index))
        self._running[index] = task
        self._next += 1
        self.waiting -= 1
        self._queue.started(self.tenant, task)
        # A callback, not a wrapper: the body of a task that is cancelled before its first step never runs.
        task.add_done_callback(functools.partial(self._over, index, time.monotonic()))

    def _over(self, index: int, begun: float, task: asyncio.Task[T]) -> None:
        del self._running[index]
        if task.cancelled():
            self._end(index, self._stopped or BROKEN, begun - self._joined)
        elif (error := task.exception()) is not None:
            logger.error("a call could not be run", exc_info=error)
            self._end(index, BROKEN, begun - self._joined)
        else:
            self._end(index, task, begun - self._joined)
        self._queue.ended(self.tenant, task, time.monotonic() - begun)

    def _end(self, index: int, ended: asyncio.Task[T] | str, waited: float) -> None:
        """Note the end of a call: what ran it, or why nothing did. Raises nothing, so that its slot comes back."""
        self._left -= 1
        if self._left == 0:
            for deadline in self._deadlines:
                deadline.cancel()
        result: T | None = None
        size = 0
        try:
            if ended != GONE:
                result = self._unrun(index, ended) if isinstance(ended, str) else ended.result()
                size = self._size_of(result)
        except Exception as error:
            logger.exception("the result of a call could not be made")
            result, self._error = None, error
        try:
            self._finished(index, result, waited)
        except Exception:  # whoever counts calls may fail: this one still has its answer
            logger.exception("the end of a call could not be recorded")
        if result is not None and not self._gone:
            self._results[index] = result, size
            self._hold(size)
        self._rouse()

    def _hold(self, size: int) -> None:
        """Count bytes of results as held, or, below zero, as not held any more."""
        was_held_up = not (self.may_start and self.tenant.may_run)
        self._unread += size
        self.tenant.unread += size
        self._queue.held.take(self.tenant.name, size)
        if was_held_up and size < 0:
            self._queue.pump()

    def _rouse(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def stop(self, reason: str) -> None:
        """End all that is left of it: what waits is answered at once, what runs is killed."""
        if self._stopped is None:
            self._stopped = reason
            self.answer_waiting(reason)
            for task in self._running.values():
                task.cancel()

    def answer_waiting(self, reason: str) -> None:
        """Answer the calls that have not started."""
        first, last = self._next, self._next + self.waiting
        self._next, self.waiting = last, 0
        self._queue.forget(self, last - first)
        self._answer(range(first, last), reason, time.monotonic() - self._joined)

    def _answer(self, indices: range, reason: str, waited: float) -> None:
        for index in indices[:AT_ONCE]:
            self._end(index, reason, waited)
        if rest := indices[AT_ONCE:]:
            asyncio.get_running_loop().call_soon(self._answer, rest, reason, waited)

    async def next(self) -> list[tuple[int, T]]:
        """Some results that have come since the last time, each with the index of its call; empty: that was all.

        Those of the last time count as read. Raises `GoneError` when the caller has left, and whatever kept a result
        from being made.
        """
        given, self._given_bytes = self._given_bytes, 0
        self._hold(-given)
        if given:
            await asyncio.sleep(0)  # to send doesn't wait where the caller reads
        while not (ready := self._take()) and self._left and not self._gone and self._error is None:
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        if self._gone:
            raise GoneError
        if self._error is not None:
            raise self._error
        return ready

    def _take(self) -> list[tuple[int, T]]:
        ready: list[tuple[int, T]] = []
        while self._results and len(ready) < AT_ONCE and self._given_bytes < BYTES_AT_ONCE:
            index = self._given if self._in_order else next(iter(self._results))
            if index not in self._results:
                break
            result, size = self._results.pop(index)
            ready.append((index, result))
            self._given += 1
            self._given_bytes += size
        return ready

    async def _watch(self) -> None:
        await self._gone_later()
        self._gone = True
        self.stop(GONE)
        self._rouse()

    def __enter__(self) -> Self:
        """Join the queue. Raises the `HttpError` with which it is turned away, if it is."""
        self._queue.check(self.tenant, self.waiting, self.size)
        loop = asyncio.get_running_loop()
        self._watcher = loop.create_task(self._watch())
        self._queue.join(self)
        for seconds, expire in ((self._within, self.stop), (self._start_within, self.answer_waiting)):
            if seconds is None:
                continue
            if seconds <= 0:
                expire(EXPIRED)
            else:
                self._deadlines.append(loop.call_later(seconds, expire, EXPIRED))
        self._queue.pump()
        return self

    def __exit__(self, *_: object) -> None:
        self._watcher.cancel()
        self._gone = True
        if self._left:
            self.stop(GONE)
        self._queue.held.take(self.tenant.name, -self.size)
        self._hold(-self._unread)

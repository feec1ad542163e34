"""The slots of one environment, kept at their number whatever dies."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from cleaner_sandbox.isolation.cgroups import Cgroup, SlotCgroup
from cleaner_sandbox.node.links import SessionLink
from cleaner_sandbox.node.zygotes import START_SECONDS, Slot, SlotDiedError, SlotKind, Zygote, ZygoteError, close_all

RETRY_SECONDS = 0.5
CLOSE_SECONDS = 10.0


class Pool:
    """One zygote and its slots."""

    def __init__(
        self, name: str, settings: Mapping[str, Any], size: int, indices: deque[int], cgroup: Cgroup | None = None
    ) -> None:
        self.name = name
        self._settings = settings
        self._size = size
        self._cgroup = cgroup
        """In which each slot gets one of its own (tier 3)."""
        self._indices = indices
        """Free slot numbers, shared by all pools of a node: a number stands for a pair of uids."""
        self._idle: deque[Slot] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._slots: set[Slot] = set()
        self._used_once: set[Slot] = set()
        self._zygote = Zygote(settings, self._zygote_died)
        self._tasks: set[asyncio.Task[None]] = set()
        self._replacing: asyncio.Task[None] | None = None
        self._closing = False
        self.slot_deaths = 0
        self.zygote_deaths = 0

    @property
    def versions(self) -> Mapping[str, str]:
        """Interpreter and libraries."""
        return self._zygote.versions

    @property
    def pids(self) -> tuple[int, tuple[int, ...]]:
        """The zygote's process and the supervisors'."""
        return self._zygote.pid, tuple(slot.pid for slot in self._slots if slot.started.done())

    async def start(self) -> None:
        """Start the zygote and fork all slots. Raises `ZygoteError` if that doesn't work here."""
        await self._zygote.start()
        slots = [self._fork() for _ in range(self._size)]
        for slot in slots:
            try:
                await self.begun(slot)
            except SlotDiedError:
                raise ZygoteError("a slot ended while it set up its isolation") from None
        self._idle.extend(slots)

    async def take(self) -> Slot:
        """A slot in which a run waits; in order of asking."""
        while not self._idle:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except BaseException:
                if not turn.cancel() and not turn.cancelled():
                    self._wake_next()  # it was this one's turn, and the slot is still there for the next
                raise
        return self._idle.popleft()

    async def take_with(self, files: str) -> Slot:
        """A slot of one run alone, whose working folder begins with files. Raises `SlotDiedError` if none starts."""

        def died(slot: Slot) -> None:
            self._used_once.discard(slot)
            self.free(slot.index)

        slot = self._forked(died, Slot, {"files": files})
        self._used_once.add(slot)
        try:
            await self.begun(slot)
        except BaseException:
            slot.kill()
            raise
        return slot

    async def begun(self, slot: Slot) -> None:
        """Wait until a slot has started, right after it was forked. Raises `SlotDiedError` if it doesn't.

        A zygote that lives and forks nothing is replaced, too.
        """
        zygote = self._zygote
        if not (await asyncio.wait([slot.started], timeout=START_SECONDS))[0]:
            slot.kill()
            if zygote.alive and not self._closing:
                zygote.kill()
                self._zygote_died()
        if slot.started.cancelled():
            raise SlotDiedError

    def give(self, slot: Slot) -> None:
        """Bring a slot back. A dead one has been replaced already."""
        if slot in self._used_once:
            slot.kill()
        elif slot.alive:
            self._offer(slot)

    async def answers(self, start: bytes, request: bytes, seconds: float) -> bool:
        """Run a program in an idle slot, and say whether it was answered; a slot that doesn't answer is replaced.

        Slots that are at work have their own time limits. Where none is left, one may take `seconds` to come back.
        """
        if self._slots and not self._idle:
            return True
        try:
            async with asyncio.timeout(seconds):
                slot = await self.take()
                try:
                    _, files = await slot.run(start, request, seconds)
                    close_all(files)
                finally:
                    self.give(slot)
        except (SlotDiedError, TimeoutError):
            return False
        return True

    async def close(self) -> None:
        """Kill everything, and wait until the supervisors are gone."""
        self._closing = True
        for task in self._tasks:
            task.cancel()
        ends = [end for slot in [*self._slots, *self._used_once] if (end := slot.end()) >= 0]
        await asyncio.gather(*(_gone(pidfd) for pidfd in ends))
        self._zygote.kill()

    def fork_session(self, died: Callable[[Slot], None], options: dict[str, Any]) -> SessionLink:
        """A slot for a session, which isn't one of the pool's. Raises `SlotDiedError` if there is no zygote now."""
        link = self._forked(died, SessionLink, options)
        if link.cgroup is not None:
            memory, disk, processes, _ = options["session_limits"]
            states = 1 + options["checkpoints"]
            link.cgroup.bound(states * memory + disk, states + processes)
        return link

    def free(self, index: int) -> None:
        """Give a session's number back."""
        self._indices.append(index)

    def _offer(self, slot: Slot) -> None:
        self._idle.append(slot)
        self._wake_next()

    def _wake_next(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def _fork(self) -> Slot:
        slot = self._forked(self._slot_died, Slot)
        self._slots.add(slot)
        return slot

    def _forked(
        self, died: Callable[[Slot], None], kind: type[SlotKind], more: dict[str, Any] | None = None
    ) -> SlotKind:
        """A slot with a number of its own, and a cgroup if the tier has any; a run's bounds come with the run."""
        index = self._indices[0]
        if self._cgroup is None:
            slot = self._zygote.fork(index, died, kind, more)
        else:
            cgroup = SlotCgroup(self._cgroup, index)
            with cgroup.files as files:
                slot = self._zygote.fork(index, died, kind, more, files)
            slot.cgroup = cgroup
        self._indices.popleft()
        return slot

    def _slot_died(self, slot: Slot) -> None:
        self._slots.discard(slot)
        self._indices.append(slot.index)
        with contextlib.suppress(ValueError):
            self._idle.remove(slot)
        if not self._closing:
            self.slot_deaths += 1
            # One that finds slots missing makes them all, pausing after each that doesn't start: two would not pause.
            if self._replacing is None or self._replacing.done():
                self._replacing = self._spawn(self._replace())

    def _zygote_died(self) -> None:
        if not self._closing:
            self.zygote_deaths += 1
            self._spawn(self._restart())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _replace(self) -> None:
        """Fork slots until none is missing, as soon as there is a zygote to do it."""
        while len(self._slots) < self._size:
            try:
                slot = self._fork()
                await self.begun(slot)
            except (Exception, asyncio.CancelledError):  # whatever it was: without this task there is no slot any more
                if self._closing:
                    raise
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self._offer(slot)

    async def _restart(self) -> None:
        """Start a new zygote; the slots of the old one go on."""
        while True:
            zygote = Zygote(self._settings, self._zygote_died)
            try:
                await zygote.start()
            except Exception:
                zygote.kill()
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self._zygote = zygote
                return


async def _gone(pidfd: int) -> None:
    """Wait for a killed process's end, within reason."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(pidfd, ended.set)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(ended.wait(), CLOSE_SECONDS)
    loop.remove_reader(pidfd)
    os.close(pidfd)

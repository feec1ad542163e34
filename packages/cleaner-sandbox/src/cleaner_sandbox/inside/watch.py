"""CPU time, memory and waiting time of a run's process tree, read from `/proc` by its supervisor.

A process that ended between two looks and whose parent never waited for it is counted as it was last seen. If a run has
many of those, each short, that is nearly nothing, so what they use is estimated, too: one that is new and runs at a
look stands for all that ran since the look before. The estimate counts only where it is far above what was counted.

A thread that ends takes the exact figure of its time with it, and its process is left with one in whole ticks. So a
process counts with the most that was seen of it, and no look reports less than the one before.

Of a process's threads only the first one's state is read: waits of the others count when they are over, and less of
them where they took turns.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Set

from cleaner_sandbox.inside.proc import ENDLESS, MAPPING, PIPE, Proc, ended, ending

TICK = 1.0 / os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
SURVEY_AFTER, SURVEY_EVERY = 0.25, 1.0
"""Seconds after which a run's kernel objects are counted, and then again: that is slow, and they take time to make."""
SURVEY_SECONDS = 0.01
"""Of one look, for counting them; the rest of the processes are next. One with 65,000 mappings takes longer alone."""


MOST_OBJECTS = 16_384 * MAPPING
"""With more, an exact look takes so long that what the process takes meanwhile matters: all that it maps is its own."""
CPUS = os.cpu_count() or 1
ESTIMATE_FACTOR, ESTIMATE_SECONDS = 2, 0.5
"""How far an estimate has to be above what was counted: by so much no chance, and no honest program, brings it."""
PAGE_TABLES, SWAPPED = b"VmPTE:", b"VmSwap:"
"""What a process holds and isn't resident. Pages of zeros have page tables, too."""
OWN_PARTS = (b"Pss:", b"SwapPss:")
"""Of the pages that it shares with others."""
EXACT_SHARE = 0.1
"""Of a supervisor's time that exact looks may take, for as long as the processes take little: who sleeps with much
memory in many processes would make it look all the time."""
LITTLE = 64 << 20
"""Bytes of memory, and of pages that were shared, that processes may take before they are looked at again."""
UNSEEN: tuple[float, int, frozenset[str]] = (0.0, 0, frozenset())


class Tree:
    """The processes of one run."""

    def __init__(
        self, proc: Proc, began: float, only: int | None = None, others: Callable[[], Set[str]] = frozenset
    ) -> None:
        """All in `proc` but its first process and what are `others` at each look, or one process alone."""
        self._proc = proc
        self._only = only
        self._others = others
        self._cpu: dict[tuple[str, bytes], float] = {}
        """Seconds of each process, by its number and when it started; they never go down."""
        self._before = self._before_with_children = 0.0
        """Seconds that were used before, as both counts have them."""
        self._estimated = 0.0
        """Seconds of those that live shorter than a look takes to come."""
        self._reported = 0.0
        """Seconds that the last look reported."""
        self._began = self._looked = began
        self._waited = 0.0
        self._offsets: dict[str, float] = {}
        self._still: dict[tuple[str, int, int], float] = {}
        self._closed: set[tuple[str, bytes]] = set()
        """Processes that could not be looked into."""
        self._surveys: dict[str, tuple[float, int, frozenset[str]]] = {}
        self._taken_by: dict[tuple[str, bytes], int] = {}
        """Bytes that each process held, or had copied for it, when it was last seen."""
        self._taken = 0
        """What all of them took, whatever they gave back since."""
        self._exact: tuple[float, int, int] = (0.0, 0, 0)
        """The last exact look: until when it will do, what had been taken, the bytes of pages that it found."""

    def pids(self) -> list[str]:
        """The run's processes."""
        if self._only is not None:
            return [str(self._only)]
        others = {"1", *self._others()}
        return [pid for pid in self._proc.pids() if pid not in others]

    def begin(self) -> None:
        """Leave out what the processes have used until now."""
        seen, with_children, *_ = self._look()
        self._before, self._before_with_children = seen, with_children

    def look(self) -> tuple[float, int, float]:
        """CPU seconds, bytes held (shared ones counted for each process), seconds spent runnable but waiting.

        The CPU seconds never go down from one look to the next.
        """
        seen, with_children, held, waited = self._look()
        # Both are too small at worst: the one misses what was too short to be seen, the other what nobody waited for.
        seen -= self._before
        cpu = max(seen, with_children - self._before_with_children)
        if self._estimated > ESTIMATE_FACTOR * cpu + ESTIMATE_SECONDS:
            cpu = seen + self._estimated
        # A process that ends takes its children's time with it, and an estimate can fall below its threshold again.
        self._reported = max(self._reported, cpu)
        return self._reported, held, waited

    def waits(self) -> float:
        """Seconds spent runnable but waiting, where the kernel counts the rest."""
        times: dict[str, tuple[int, int]] = {}
        states: dict[str, bytes] = {}
        for pid in self.pids():
            with contextlib.suppress(OSError):  # it ended while we looked
                states[pid] = self._proc.stat(pid)[0]
                times.update(self._proc.threads(pid))
        return self._count_waiting(times, states)

    def _look(self) -> tuple[float, float, int, float]:
        held, with_children, new_ones = 0, 0.0, 0.0
        times: dict[str, tuple[int, int]] = {}
        states: dict[str, bytes] = {}
        for pid in self.pids():
            try:
                fields = self._proc.stat(pid)
                its_own = self._held(pid, fields)
                held += its_own
                threads = self._proc.threads(pid)
            except OSError:  # it ended while we looked
                continue
            taken = its_own + int(fields[7]) * PAGE
            # What a new one holds is its parent's, but for the pages that it was given since.
            self._taken += max(0, taken - self._taken_by.get((pid, fields[19]), its_own))
            self._taken_by[pid, fields[19]] = taken
            ticks, waited_for = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
            known = self._cpu.get((pid, fields[19]))
            # The second is finer, and knows only the threads that still live.
            own = max(known or 0.0, ticks * TICK, sum(ran for ran, _ in threads.values()) / 1e9)
            if known is None and fields[0] == b"R":
                ran, waited = map(sum, zip(*threads.values(), strict=True))
                new_ones += ran / (ran + waited) if ran else 0.0
            self._cpu[pid, fields[19]] = own
            with_children += own + waited_for * TICK
            times.update(threads)
            states[pid] = fields[0]
        if time.monotonic() - self._began > SURVEY_AFTER:
            self._survey(states)
        self._estimated += min(new_ones, CPUS) * (time.monotonic() - self._looked)
        held = min(held + self._in_kernel, ENDLESS)
        return sum(self._cpu.values()), with_children, held, self._count_waiting(times, states)

    def count_objects(self) -> None:
        """Count the kernel objects of all processes now, however long it takes."""
        self._surveys = {}
        for pid in self.pids():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended while we looked
                self._surveys[pid] = (time.monotonic(), *self._objects(pid))

    def held_exactly(self) -> int:
        """Bytes held, those that processes share counted once: slower than `look`."""
        held = self._in_kernel
        for pid in self.pids():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                held += self._held_exactly(pid)
        return min(held, ENDLESS)

    def held_lately(self) -> int:
        """What an exact look gives, or gave a short while ago if little was taken since."""
        until, taken, pages = self._exact
        begun = time.monotonic()
        if begun >= until or self._taken >= taken + LITTLE:
            pages = self.held_exactly() - self._in_kernel
            now = time.monotonic()
            self._exact = now + (now - begun) / EXACT_SHARE, self._taken, pages
        return min(pages + self._in_kernel, ENDLESS)

    def _held(self, pid: str, fields: list[bytes]) -> int:
        """Bytes that a process holds, shared ones included, by its fields of `stat`."""
        if not ending(fields) or ended(fields):
            return int(fields[21]) * PAGE + self._proc.status_bytes(pid, PAGE_TABLES, SWAPPED)
        held = self._proc.through_holder(pid, self._held_by)
        return ENDLESS if held is None else held

    def _held_by(self, thread: str) -> int:
        return int(self._proc.stat(thread)[21]) * PAGE + self._proc.status_bytes(thread, PAGE_TABLES, SWAPPED)

    def _held_exactly(self, pid: str) -> int:
        _, objects, _ = self._surveys.get(pid, UNSEEN)
        held = self._proc.through_holder(pid, self._held_exactly_by if objects <= MOST_OBJECTS else self._held_by)
        return ENDLESS if held is None else held

    def _held_exactly_by(self, thread: str) -> int:
        try:
            lines = self._proc.read(f"{thread}/smaps_rollup").split(b"\n")
        except PermissionError:  # what we may not look into is all its own
            return self._held_by(thread)
        pages = sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(OWN_PARTS))
        return pages + self._proc.status_bytes(thread, PAGE_TABLES)

    @property
    def _in_kernel(self) -> int:
        """Bytes of kernel objects, as they were last counted."""
        pipes = frozenset[str]().union(*(pipes for _, _, pipes in self._surveys.values()))
        return sum(held for _, held, _ in self._surveys.values()) + len(pipes) * PIPE

    def _survey(self, living: Iterable[str]) -> None:
        """Count the kernel objects of the processes that weren't looked at for longest."""
        now = time.monotonic()
        self._surveys = {pid: self._surveys.get(pid, UNSEEN) for pid in living}
        for pid, (counted, _, _) in sorted(self._surveys.items(), key=lambda item: item[1][0]):
            if now - counted < SURVEY_EVERY or time.monotonic() - now > SURVEY_SECONDS:
                return
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended while we looked
                self._surveys[pid] = (now, *self._objects(pid))

    def _objects(self, pid: str) -> tuple[int, frozenset[str]]:
        try:
            return self._proc.through_holder(pid, self._proc.kernel_objects) or (ENDLESS, frozenset())
        except PermissionError:
            # One that is about to end is closed to us, too. One that still is at the next survey is a program that may
            # be run and not read, and nobody knows what it holds.
            process = pid, self._proc.stat(pid)[19]
            known = process in self._closed and not self._proc.dead(pid)
            self._closed.add(process)
            return ENDLESS if known else 0, frozenset()

    def _count_waiting(self, times: dict[str, tuple[int, int]], states: dict[str, bytes]) -> float:
        """Seconds in which some thread waited: many that wait at once wait once.

        The kernel adds a wait to a thread's when it is over, however many looks it took. So what a thread has waited
        since it was last seen asleep comes on top of what was counted by then: no time is counted for two of them.
        """
        now = time.monotonic()
        elapsed, pause = now - self._began, now - self._looked
        delays = {name: delay / 1e9 for name, (_, delay) in times.items()}
        # A thread that is new to us waited in this run since the last look at most.
        new = {name: self._waited - max(0.0, delay - pause) for name, delay in delays.items()}
        offsets = {name: self._offsets.get(name, offset) for name, offset in new.items()}
        counted = {name: offsets[name] + delays[name] for name in times}
        self._waited = min(elapsed, max([self._waited, *counted.values()]))
        asleep = [name for name in times if states.get(name, b"R") != b"R"]
        self._offsets = offsets | {name: self._waited - delays[name] for name in asleep}
        # Runnable, and its times stand still: it waits. That is only said here, and counted when the kernel does.
        runnable = [(name, *times[name]) for name in times if states.get(name) == b"R"]
        self._still = {key: self._still.get(key, now) for key in runnable}
        going_on = [counted[name] + now - since for (name, *_), since in self._still.items()]
        self._looked = now
        return min(elapsed, max([self._waited, *going_on]))

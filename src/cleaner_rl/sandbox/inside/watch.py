"""CPU time, memory and waiting time of a run's process tree, read from `/proc` by its supervisor.

A process that ended between two looks and whose parent never waited for it is counted as it was last seen; the wall cap
bounds what that can hide. Of a process's threads only the first one's state is read: waits of the others count when
they are over, and less of them where they took turns.
"""

from __future__ import annotations

import contextlib
import os
import time

from cleaner_rl.sandbox.inside.proc import Proc

TICK = 1.0 / os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class Tree:
    """The processes of one run."""

    def __init__(self, proc: Proc, began: float, only: int | None = None, others: frozenset[str] = frozenset()) -> None:
        """All in `proc` but its first process and `others`, or one process alone."""
        self._proc = proc
        self._only = only
        self._others = others | {"1"}
        self._cpu: dict[str, float] = {}
        self._began = self._looked = began
        self._waited = 0.0
        self._offsets: dict[str, float] = {}
        self._still: dict[tuple[str, int, int], float] = {}

    def pids(self) -> list[str]:
        """The run's processes."""
        if self._only is not None:
            return [str(self._only)]
        return [pid for pid in self._proc.pids() if pid not in self._others]

    def look(self) -> tuple[float, int, float]:
        """CPU seconds, resident bytes (shared ones counted for each process), seconds spent runnable but waiting."""
        held, with_children = 0, 0.0
        times: dict[str, tuple[int, int]] = {}
        states: dict[str, bytes] = {}
        for pid in self.pids():
            try:
                fields = self._proc.stat(pid)
                held += int(fields[21]) * PAGE
                threads = self._proc.threads(pid)
            except OSError:  # it ended while we looked
                continue
            ticks, waited_for = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
            # The second is finer, and knows only the threads that still live.
            own = max(ticks * TICK, sum(ran for ran, _ in threads.values()) / 1e9)
            self._cpu[pid] = own
            with_children += own + waited_for * TICK
            times.update(threads)
            states[pid] = fields[0]
        # Both are too small at worst: the one misses what was too short to be seen, the other what nobody waited for.
        return max(sum(self._cpu.values()), with_children), held, self._count_waiting(times, states)

    def held_exactly(self) -> int:
        """Resident bytes, those that processes share counted once: slower than `look`."""
        held = 0
        for pid in self.pids():
            try:
                held += self._pss(pid)
            except (FileNotFoundError, ProcessLookupError):
                continue
            except PermissionError:  # what we may not look into is all its own
                with contextlib.suppress(OSError):
                    held += int(self._proc.stat(pid)[21]) * PAGE
        return held

    def _pss(self, pid: str) -> int:
        lines = self._proc.read(f"{pid}/smaps_rollup").split(b"\n")
        return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(b"Pss:"))

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

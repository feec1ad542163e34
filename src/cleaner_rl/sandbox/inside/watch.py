"""CPU time, memory and waiting time of a run's process tree, read from `/proc` by its supervisor.

A process that ended between two looks and whose parent never waited for it is counted as it was last seen; the wall cap
bounds what that can hide.
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
        self._delays: dict[str, int] = {}
        self._looked = began
        self._waited = 0.0

    def pids(self) -> list[str]:
        """The run's processes."""
        if self._only is not None:
            return [str(self._only)]
        return [pid for pid in self._proc.pids() if pid not in self._others]

    def look(self) -> tuple[float, int, float]:
        """CPU seconds, resident bytes (shared ones counted for each process), seconds spent runnable but waiting."""
        held, with_children = 0, 0.0
        delays: dict[str, int] = {}
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
            delays.update({name: waited for name, (_, waited) in threads.items()})
        self._count_waiting(delays)
        # Both are too small at worst: the one misses what was too short to be seen, the other what nobody waited for.
        return max(sum(self._cpu.values()), with_children), held, self._waited

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

    def _count_waiting(self, delays: dict[str, int]) -> None:
        """Add the longest that any one thread has waited since the last look: many that wait at once wait once."""
        now = time.monotonic()
        longest = max((delay - self._delays.get(thread, 0) for thread, delay in delays.items()), default=0)
        self._waited += min(longest / 1e9, now - self._looked)
        self._looked, self._delays = now, delays

"""CPU time, memory and waiting time of a run's process tree, read from `/proc` by its supervisor.

A process that ended between two looks and whose parent never waited for it is counted as it was last seen; the wall cap
bounds what that can hide.
"""

from __future__ import annotations

import os
import time

TICK = 1.0 / os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class Tree:
    """The processes of one run, found in a `/proc` that shows only them and their supervisor."""

    def __init__(
        self,
        proc: int,
        main: int,
        whole_namespace: bool,
        base_rss: int,
        began: float,
        others: frozenset[str] = frozenset(),
    ) -> None:
        self._proc = proc
        """Folder descriptor of `/proc`."""
        self._main = main
        self._others = others | {"1"}
        """Processes in the namespace that aren't the run's."""
        self._whole_namespace = whole_namespace
        self._base_rss = base_rss
        self._cpu: dict[str, float] = {}
        self._delays: dict[str, int] = {}
        self._looked = began
        self._waited = 0.0

    def pids(self) -> list[str]:
        """The run's processes."""
        if not self._whole_namespace:
            return [str(self._main)]
        return [name for name in os.listdir(self._proc) if name.isdigit() and name not in self._others]

    def look(self) -> tuple[float, int, float]:
        """CPU seconds, bytes held beyond the interpreter, seconds spent runnable but waiting."""
        held, with_children = 0, 0.0
        delays: dict[str, int] = {}
        for pid in self.pids():
            try:
                ticks, waited_for = self._cpu_of(pid)
                held += max(0, self._rss_of(pid) - self._base_rss)
                threads = self._threads_of(pid)
            except OSError:  # it ended while we looked
                continue
            # The second is finer, and knows only the threads that still live.
            own = max(ticks, sum(ran for ran, _ in threads.values()) / 1e9)
            delays.update({name: waited for name, (_, waited) in threads.items()})
            self._cpu[pid] = own
            with_children += own + waited_for
        self._count_waiting(delays)
        # Both are too small at worst: the one misses what was too short to be seen, the other what nobody waited for.
        return max(sum(self._cpu.values()), with_children), held, self._waited

    def held_exactly(self) -> int:
        """Bytes held beyond the interpreter, pages that processes share counted once: slower than `look`."""
        held = 0
        for pid in self.pids():
            try:
                text = self._read(f"{pid}/smaps_rollup")
            except (FileNotFoundError, ProcessLookupError):
                continue
            held += int(text.split(b"\nPss:", 1)[1].split(None, 1)[0]) * 1024 if b"\nPss:" in text else 0
        return held

    def _count_waiting(self, delays: dict[str, int]) -> None:
        """Add the longest that any one thread has waited since the last look: many that wait at once wait once."""
        now = time.monotonic()
        longest = max((delay - self._delays.get(thread, 0) for thread, delay in delays.items()), default=0)
        self._waited += min(longest / 1e9, now - self._looked)
        self._looked, self._delays = now, delays

    def _read(self, path: str) -> bytes:
        descriptor = os.open(path, os.O_RDONLY, dir_fd=self._proc)
        try:
            return os.read(descriptor, 4096)
        finally:
            os.close(descriptor)

    def _cpu_of(self, pid: str) -> tuple[float, float]:
        # The name in parentheses may hold anything; the numbers start after the last parenthesis.
        fields = self._read(f"{pid}/stat").rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) * TICK, (int(fields[13]) + int(fields[14])) * TICK

    def _rss_of(self, pid: str) -> int:
        return int(self._read(f"{pid}/statm").split()[1]) * PAGE

    def _threads_of(self, pid: str) -> dict[str, tuple[int, int]]:
        """Nanoseconds that each thread ran, and that it waited to run."""
        folder = os.open(f"{pid}/task", os.O_RDONLY, dir_fd=self._proc)
        try:
            names = os.listdir(folder)
        finally:
            os.close(folder)
        times = {name: self._read(f"{pid}/task/{name}/schedstat").split() for name in names}
        return {name: (int(ran), int(waited)) for name, (ran, waited, _) in times.items()}

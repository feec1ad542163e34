"""How much memory a session holds: its states, its files and its sockets.

An exact look at all states costs as much as a small cell. So what each cell made and what each state took since then is
added up, and there is an exact look only when the sum may be far from the truth.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from cleaner_sandbox.inside.proc import ENDLESS, Proc
from cleaner_sandbox.inside.states import State, Taken
from cleaner_sandbox.inside.watch import PAGE_TABLES, Tree

UNSURE = 64 << 20
"""Bytes by which what a session says it holds may be too many: there is an exact look when its cells, and the states
that were dropped, can have made so much of a difference."""
OWN_PAGES = (b"Private_", b"Swap:")


class Account:
    """What one session holds."""

    def __init__(self, proc: Proc, folder: str, in_sockets: Callable[[], int]) -> None:
        """`folder`: where the layers of its files are. `in_sockets` says how many bytes are in sockets."""
        self._proc, self._folder, self._in_sockets = proc, folder, in_sockets
        self._made: dict[State, int] = {}
        """Bytes that the cells of the kept states made: what no other process had when they ended."""
        self._weighed = self._grown = self._shrunk = 0
        """Bytes of all states at the last exact look, and the most that there can be more and less since."""

    @property
    def unsure(self) -> bool:
        """Whether the sum may be far from what an exact look would find."""
        return self._grown + self._shrunk >= UNSURE

    @property
    def held(self) -> int:
        """Bytes of all states, files and sockets."""
        return int(min(self._weighed + self._grown + self.beside, ENDLESS))

    @property
    def beside(self) -> int:
        """Bytes of the session's files and sockets, which are no process's."""
        files = os.statvfs(self._folder)
        return (files.f_blocks - files.f_bfree) * files.f_frsize + self._in_sockets()

    def count(self, new: State) -> None:
        """Note what the cell of a state made."""
        try:
            lines = self._proc.read(f"{new.pid}/smaps_rollup").split(b"\n")
            made = sum(int(line.split()[1]) << 10 for line in lines if line.startswith(OWN_PAGES))
            # Those of a fork are its own, though it shares the pages.
            made += self._proc.status_bytes(str(new.pid), PAGE_TABLES)
        except OSError:  # dead, or not ours to see
            made = UNSURE
        self._made[new] = made
        self._grown += made

    def count_taken(self, each: State) -> None:
        """Count what a state has taken since it was last looked at."""
        before, pid = each.taken, str(each.pid)
        each.taken = self.taken(pid, self._proc.maps(pid) or b"")
        self.add_taken(each, before)

    def add_taken(self, each: State, before: Taken) -> None:
        """Count what a state has taken since it had taken `before`."""
        taken = each.taken.since(before)
        self._grown += taken
        self._made[each] = self._made.get(each, 0) + taken

    def taken(self, pid: str, maps: bytes) -> Taken:
        """What a process has taken so far."""
        return Taken(self._proc.faults(pid), self._proc.status_bytes(pid, PAGE_TABLES), maps.count(b"\n"))

    def forget(self, dropped: State) -> None:
        """Note that a state was dropped: what its cell made may be free."""
        self._shrunk += self._made.pop(dropped, 0)

    def set_weighed(self, held: int) -> None:
        """Note what an exact look found."""
        self._weighed, self._grown, self._shrunk = held, 0, 0

    def weigh(self, only: State | None = None) -> int:
        """Look exactly at what all states hold, with the outputs that they kept, and the processes beside them.

        With `only`, look at that state alone.
        """
        tree = Tree(self._proc, time.monotonic(), None if only is None else only.pid)
        tree.count_objects()
        return tree.held_exactly() + self._proc.memory_files(tree.pids())

"""What the kernel counts for the cgroup of a slot, in both versions of cgroups.

A slot sees no file of its cgroup: the node opens them and hands them over when it asks for the slot.
"""

from __future__ import annotations

import os
import time

LONGEST = 8192
"""Bytes of the longest of these files."""


class Counted:
    """The cgroup that a supervisor shares with its runs."""

    def __init__(self, files: list[int]) -> None:
        """Enter the cgroup. `files`: what it used, holds and lost, as `SlotCgroup.files` has them; then its doors."""
        self._cpu, self._memory, self._stat, self._events, *doors = files
        for door in doors:
            os.write(door, b"0")  # whoever writes this is meant
            os.close(door)

        self.tells_held = b"slab_reclaimable" in os.pread(self._stat, LONGEST, 0)
        """Version 1 doesn't say how much of the kernel's own memory the kernel can take back."""

    def cpu_seconds(self) -> float:
        """CPU time of all that ran in it so far, without that of this supervisor."""
        text = os.pread(self._cpu, LONGEST, 0)
        used = int(text.split(maxsplit=2)[1]) / 1e6 if text.startswith(b"usage_usec") else int(text) / 1e9
        return used - time.process_time()

    def held(self) -> int:
        """Bytes that the kernel can't take back: without files that it can read again, and names that it remembers."""
        text = os.pread(self._stat, LONGEST, 0)
        found = {name: int(value) for name, value in map(bytes.split, text.splitlines())}
        return int(os.pread(self._memory, LONGEST, 0)) - found[b"file"] + found[b"shmem"] - found[b"slab_reclaimable"]

    def killed(self) -> int:
        """How often the kernel has killed a process in it because memory ran out."""
        return oom_kills(os.pread(self._events, LONGEST, 0))


def oom_kills(events: bytes) -> int:
    """The number in `memory.events`, or in `memory.oom_control` of version 1."""
    return next((int(line.split()[1]) for line in events.splitlines() if line.startswith(b"oom_kill ")), 0)

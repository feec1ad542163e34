"""Tier 3: one cgroup (version 2) per slot, which bounds memory and processes in the kernel.

**Untested against a kernel.** The tests cover what is written where. A node uses this tier only if it is asked to.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
NEEDED = ("memory", "pids")


def own_cgroup(root: Path = ROOT, membership: Path = Path("/proc/self/cgroup")) -> Path:
    """The cgroup that this process is in."""
    for line in membership.read_text().splitlines():
        if line.startswith("0::"):
            return root / line[3:].lstrip("/")
    return root


def problem(root: Path = ROOT) -> str | None:
    """Why cgroups can't be made here; None if they can."""
    if not (root / "cgroup.controllers").exists():
        return "there is no cgroup v2 hierarchy"
    cgroup = own_cgroup(root)
    given = (cgroup / "cgroup.controllers").read_text().split() if (cgroup / "cgroup.controllers").exists() else []
    if missing := [name for name in NEEDED if name not in given]:
        return f"the node's own cgroup lacks the controllers {', '.join(missing)}"
    return None if os.access(cgroup, os.W_OK) else "the node's own cgroup is read-only"


class Cgroups:
    """The cgroups of a node's slots, all with the same bounds."""

    def __init__(self, parent: Path, memory_bytes: int, processes: int) -> None:
        self._parent = parent
        self._bounds = memory_bytes, processes
        # A cgroup that hands out controllers may not hold processes, so the node moves to one of its own.
        own = parent / "node"
        own.mkdir(exist_ok=True)
        (own / "cgroup.procs").write_text(str(os.getpid()))
        (parent / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in NEEDED))

    def make(self, index: int, pid: int) -> Cgroup:
        """A cgroup for the slot with this number, and its supervisor in it."""
        cgroup = Cgroup(self._parent, f"slot{index}", *self._bounds)
        cgroup.add(pid)
        return cgroup


class Cgroup:
    """The cgroup of one slot."""

    def __init__(self, parent: Path, name: str, memory_bytes: int, processes: int) -> None:
        self._path = parent / name
        self._path.mkdir(exist_ok=True)
        (self._path / "memory.max").write_text(str(memory_bytes))
        with contextlib.suppress(OSError):  # only where there is swap
            (self._path / "memory.swap.max").write_text("0")
        (self._path / "pids.max").write_text(str(processes))
        self._kills = self._oom_kills()

    def add(self, pid: int) -> None:
        """Put a slot's supervisor in, with what it has forked already; what it forks from then on is in by itself."""
        (self._path / "cgroup.procs").write_text(str(pid))
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            (self._path / "cgroup.procs").write_text(child)

    def ran_out(self) -> bool:
        """Whether the kernel has killed anything in it because memory ran out since the last call."""
        before, self._kills = self._kills, self._oom_kills()
        return self._kills > before

    def remove(self) -> None:
        """Take the empty cgroup away."""
        with contextlib.suppress(OSError):
            self._path.rmdir()

    def _oom_kills(self) -> int:
        with contextlib.suppress(OSError):
            for line in (self._path / "memory.events").read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
        return 0

"""Tier 3: a cgroup per slot, which bounds memory and processes, the kernel's own memory included, and counts CPU time.

Both versions are spoken. In version 2 all controllers are in one folder, in version 1 each has a tree of its own. The
tests try the version of their machine on its kernel; `benchmarks/sandbox_qemu.py` tries version 2. A node uses this
tier only if it is asked to: in version 2 all processes of its own cgroup have to move to one below.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

from cleaner_sandbox.inside.counted import oom_kills

ROOT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
NEEDED = ("memory", "pids")
"""Controllers; in version 1 CPU time has one of its own, `cpuacct`."""
LEAF = "cleaner_node"
"""Of the cgroup, in version 2, that the node's own processes are in."""
PREFIX = "cleaner-"
"""Of nodes' cgroups; the node's process follows. Those of its slots are in it."""
REMOVE_SECONDS = 10.0
OWN_BYTES = 64 << 20
OWN_PROCESSES = 4
"""What a slot's cgroup allows beyond a run's limits: for the supervisor, and the pages of the interpreter that a run
makes its own by writing to them."""


class Cgroup:
    """A cgroup with what bounds memory and processes and counts CPU time."""

    def __init__(self, memory: Path, pids: Path, cpu: Path) -> None:
        self._memory, self._pids, self._cpu = memory, pids, cpu
        self._unified = memory == pids

    def child(self, name: str) -> Cgroup:
        """The one of this name below it, made if there is none."""
        made = Cgroup(self._memory / name, self._pids / name, self._cpu / name)
        for folder in made._folders:
            folder.mkdir(exist_ok=True)
        return made

    def hand_out(self) -> None:
        """Let those below it have the controllers; in version 2 it then may hold no process."""
        if self._unified:
            (self._memory / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in NEEDED))

    def for_node(self) -> Cgroup:
        """Make the cgroup of a node of this process, and take away those of nodes that are gone."""
        for folder in self._folders:
            for left in folder.glob(f"{PREFIX}*"):
                pid = left.name.removeprefix(PREFIX).partition("-")[0]
                if not Path(f"/proc/{pid}").exists():
                    _remove(left)
        if self._unified:
            self._clear()
        self.hand_out()
        made = self.child(f"{PREFIX}{os.getpid()}-{uuid.uuid4().hex[:8]}")
        made.hand_out()
        return made

    def _clear(self) -> None:
        """Move its processes to one below it: this one, and those beside it, such as the one that started a service."""
        doors = self._memory / LEAF / "cgroup.procs"
        doors.parent.mkdir(exist_ok=True)
        for pid in (self._memory / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):  # it ended
                doors.write_text(pid)

    def bound(self, memory_bytes: int, processes: int) -> None:
        """Set how much memory and how many processes it may hold."""
        (self._memory / ("memory.max" if self._unified else "memory.limit_in_bytes")).write_text(str(memory_bytes))
        with contextlib.suppress(OSError):  # only where there is swap
            if self._unified:
                (self._memory / "memory.swap.max").write_text("0")
            else:
                (self._memory / "memory.swappiness").write_text("0")
        (self._pids / "pids.max").write_text(str(processes))

    @contextlib.contextmanager
    def files(self) -> Iterator[list[int]]:
        """Descriptors for `inside.counted`: CPU time, memory, what it is made of, what ran out; then for entering."""
        used, held = ("cpu.stat", "memory.current") if self._unified else ("cpuacct.usage", "memory.usage_in_bytes")
        read = [self._cpu / used, self._memory / held, self._memory / "memory.stat", self._events]
        with contextlib.ExitStack() as stack:
            opened = [os.open(path, os.O_RDONLY) for path in read]
            opened += [os.open(folder / "cgroup.procs", os.O_WRONLY) for folder in self._folders]
            for descriptor in opened:
                stack.callback(os.close, descriptor)
            yield opened

    def oom_kills(self) -> int:
        """How often the kernel has killed anything in it because memory ran out."""
        return oom_kills(self._events.read_bytes())

    async def remove(self) -> None:
        """Take it away with those below it, once their last processes have ended."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REMOVE_SECONDS):
                for folder in self._folders:
                    while not _remove(folder):  # noqa: ASYNC110  # the kernel tells nobody when a cgroup is empty
                        await asyncio.sleep(0.01)

    @property
    def problem(self) -> str | None:
        """Why no cgroups can be made in it; None if they can."""
        for folder in self._folders:
            if not os.access(folder / "cgroup.procs", os.W_OK):
                return "the node's own cgroup is read-only"
        return None

    @property
    def _folders(self) -> tuple[Path, ...]:
        return (self._memory,) if self._unified else (self._memory, self._pids, self._cpu)

    @property
    def _events(self) -> Path:
        return self._memory / ("memory.events" if self._unified else "memory.oom_control")


def own_cgroup(root: Path = ROOT, membership: Path = MEMBERSHIP) -> Cgroup | str:
    """Return the cgroup that this process is in, or why there is none with the controllers that a node needs."""
    try:
        lines = [line.split(":", 2) for line in membership.read_text().splitlines()]
    except OSError:
        return "the kernel has no cgroups"
    paths = {name: path.lstrip("/") for _, names, path in lines for name in names.split(",")}
    unified = root / paths.get("", "")
    if unified.name == LEAF:  # where another node of this process has moved it
        unified = unified.parent
    if _holds(unified / "cgroup.controllers"):
        return Cgroup(unified, unified, unified)
    trees = (*NEEDED, "cpuacct")
    if all(name in paths and (root / name).is_dir() for name in trees):
        return Cgroup(*(root / name / paths[name] for name in trees))
    return f"the node's own cgroup lacks the controllers {' and '.join(NEEDED)}"


def _holds(controllers: Path) -> bool:
    return controllers.exists() and set(NEEDED) <= set(controllers.read_text().split())


def problem() -> str | None:
    """Why cgroups can't be made here; None if they can."""
    own = own_cgroup()
    return own if isinstance(own, str) else own.problem


def _remove(folder: Path) -> bool:
    """Remove a cgroup with those right below it; say whether it is gone."""
    for each in (*(path for path in folder.glob("*") if path.is_dir()), folder):
        with contextlib.suppress(OSError):
            each.rmdir()
    return not folder.exists()


class SlotCgroup:
    """The cgroup of one slot, bounded anew for each run that has other limits than the last."""

    def __init__(self, parent: Cgroup, index: int) -> None:
        self._cgroup = parent.child(str(index))
        self._bounds = (0, 0)
        self._kills = self._cgroup.oom_kills()

    @property
    def files(self) -> contextlib.AbstractContextManager[list[int]]:
        """What its supervisor enters it by, and reads."""
        return self._cgroup.files()

    def bound(self, memory_bytes: int, processes: int) -> None:
        """Set what the next run may hold, beside its supervisor."""
        if self._bounds != (memory_bytes, processes):
            self._cgroup.bound(memory_bytes + OWN_BYTES, processes + OWN_PROCESSES)
            self._bounds = memory_bytes, processes

    def ran_out(self) -> bool:
        """Whether the kernel has killed anything in it because memory ran out since the last call."""
        before, self._kills = self._kills, self._cgroup.oom_kills()
        return self._kills > before

"""Checks of the machine itself: system, memory, disk."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path

from cleaner_rl import __version__
from cleaner_rl.doctor.check import Check, State

GB = 2**30
LEAST = GB
"""Bytes of memory and disk below which there is a remedy: a node with a few slots and a small store fit."""
ELSEWHERE = (
    "the core, `cleaner purify`, `cleaner view` and `cleaner demo` run here (Windows is untested; WSL is Linux). The "
    "sandbox comes as its container: build packages/cleaner-sandbox/Containerfile, and give its address as --sandbox"
)


def system() -> Check:
    """Check the operating system, and where Python is installed."""
    found = f"cleaner-rl {__version__}, Python {platform.python_version()}, {platform.system()} {platform.release()}"
    if sys.platform != "linux":
        return Check("system", State.LESS, found, ELSEWHERE)
    if Path(sys.prefix).is_relative_to("/tmp"):
        return Check(
            "system",
            State.LESS,
            f"{found}, installed below /tmp",
            "sandboxed programs have a /tmp of their own and won't see numpy or sympy there: install elsewhere",
        )
    return Check("system", State.OK, found)


def memory(limits: Path = Path("/sys/fs/cgroup/memory.max"), details: Path = Path("/proc/meminfo")) -> Check:
    """Check how much memory this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    sizes = []
    if hasattr(os, "sysconf"):
        sizes.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    if limits.is_file() and (limit := limits.read_text().strip()).isdigit():
        sizes.append(int(limit))
    if not sizes:
        return Check("memory", State.OK, f"{cores} cores; this system doesn't say how much memory it has")
    free = _available(details)
    said = f"{cores} cores, {min(sizes) / GB:.1f} GB" + ("" if free is None else f", {free / GB:.1f} GB of it free")
    if min(sizes) >= LEAST and (free is None or free >= LEAST):
        return Check("memory", State.OK, said)
    return Check("memory", State.LESS, said, "run fewer programs at a time: `cleaner sandbox serve --slots 1`")


def _available(details: Path) -> int | None:
    lines = details.read_text().splitlines() if details.is_file() else []
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), None)


def disk() -> Check:
    """Check the disks where stores, indexes and temporary files go."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    places = {"here": Path.cwd(), "temporary": Path(tempfile.gettempdir()), "cache": _existing(cache)}
    free = {name: shutil.disk_usage(place).free for name, place in places.items()}
    said = ", ".join(f"{size / GB:.0f} GB {name}" for name, size in free.items())
    if min(free.values()) >= LEAST:
        return Check("disk", State.OK, f"free: {said}")
    return Check(
        "disk",
        State.LESS,
        f"free: {said}",
        "free some space, or set TMPDIR and XDG_CACHE_HOME to folders that have more",
    )


def _existing(folder: Path) -> Path:
    return next(each for each in (folder, *folder.parents) if each.exists())

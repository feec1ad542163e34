"""Starts child processes that end with the run, however it ends, so that none keeps a GPU occupied.

Limits: a run that is killed by SIGKILL can't clean up. On Linux the kernel then sends its processes a SIGTERM; on other
systems they continue.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

GRACE_SECONDS = 20.0
"""How long a process may take to end after SIGTERM."""
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def started(arguments: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process in its own group, which signals to our terminal don't reach; `end` ends it, or our own exit."""
    return subprocess.Popen(arguments, start_new_session=True, preexec_fn=_ends_with_its_parent, **options)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process and those it started: first by SIGTERM, then by SIGKILL."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def end_marked(variable: str, value: str) -> None:
    """Kill every process that has this environment variable: those that left the group of the program they belong to.

    Linux only; elsewhere such processes are left to themselves.
    """
    mark, deadline = os.fsencode(f"{variable}={value}"), time.monotonic() + GRACE_SECONDS
    while (left := list(_marked(mark))) and time.monotonic() < deadline:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def _marked(mark: bytes) -> Iterator[int]:
    for file in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has ended, or is another user's
            if mark in file.read_bytes().split(b"\0"):
                yield int(file.parent.name)


def _ends_with_its_parent() -> None:
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

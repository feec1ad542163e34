"""The processes of a run end with it, whichever way it ends: none of them goes on alone, on GPUs that others wait for.

Limits: a run that is killed outright (SIGKILL) can clean up nothing itself; on Linux its processes get a SIGTERM from
the kernel then, elsewhere they go on.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

GRACE_SECONDS = 20.0
"""For a process to end after it was told to."""
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def started(arguments: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """A process in a group of its own, which a signal to our terminal doesn't reach: `end` ends it, or our own end."""
    return subprocess.Popen(arguments, start_new_session=True, preexec_fn=_ends_with_its_parent, **options)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process and those it started, politely first."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Within, a SIGTERM or SIGHUP raises `SystemExit`, so that whatever was started is ended on the way out."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return
    before = {number: signal.signal(number, _leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int, _frame: FrameType | None) -> None:
    for each in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)  # a second one must not break off the cleaning up
    raise SystemExit(128 + number)


def _ends_with_its_parent() -> None:
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

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
from collections.abc import Sequence
from contextlib import suppress
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


def _ends_with_its_parent() -> None:
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

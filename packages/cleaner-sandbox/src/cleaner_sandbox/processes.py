"""Processes: which ones live below another, and how a program that is ended still cleans up."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Within this context, raise `SystemExit` on SIGTERM or SIGHUP, so that whatever was started is ended on the way
    out.
    """
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


def descendants(roots: Iterable[int]) -> set[int]:
    """Return those of these processes that live, and all processes below them."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
                if fields[0] != "Z":
                    children.setdefault(int(fields[1]), []).append(int(name))
    living = {pid for pids in children.values() for pid in pids}
    found: set[int] = set()
    waiting = [pid for pid in roots if pid in living]
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting += children.get(pid, [])
    return found

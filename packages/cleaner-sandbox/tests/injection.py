"""Something that happens at one point of what a node does for a request: at the first, the second, the third, ...

A profiler sees every function of `cleaner_sandbox` that begins, every coroutine that goes on after an `await`, and
every system call. Each of these is a point at which something can raise, or a caller can leave.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import cleaner_sandbox

SOURCES = str(Path(cleaner_sandbox.__file__).parent)
SYSTEM = {"posix", "fcntl", "_socket", "socket", "signal", "_signal", "marshal", "_struct"}
COUNTING = {
    *("Queue.running", "Queue.join", "Queue.pump", "Queue._start_one", "Queue.started", "Queue.ended", "Queue.forget"),
    *("PendingRequest.start", "PendingRequest.may_start", "PendingRequest._over", "PendingRequest._end"),
    *("PendingRequest.stop", "PendingRequest.answer_waiting", "PendingRequest._answer"),
    *("PendingRequest._hold", "PendingRequest._rouse", "PendingRequest.__exit__"),
    *("Tenant.may_run", "Shares.take", "Pool.give", "Pool._offer", "Pool._wake_next"),
    *("OutputPreview.close", "Session.close", "Session.end", "Slot.kill", "SessionLink.kill", "Pool._slot_died"),
    *("Session.supervisor_died", "SessionStore._start.<locals>.died", "SessionStore._closed"),
    *("close_all", "close", "fileno"),
}
"""What counts, and what gives back. It adds and closes, so nothing in it raises, but for what it calls beyond these."""


class InjectedError(Exception):
    """What is raised at a point."""


class Injection:
    """To be used in a `with` statement, which holds what is to be disturbed at its point number `at`."""

    def __init__(self, at: int, act: Callable[[], object] | None = None) -> None:
        self._left = at
        self._act = act
        self.place = ""
        """Where it happened; empty if there were fewer points."""

    def __enter__(self) -> Injection:
        sys.setprofile(self._look)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _look(self, frame: FrameType, event: str, called: Any) -> None:
        code = frame.f_code
        if not code.co_filename.startswith(SOURCES) or code.co_qualname in COUNTING:
            return
        if event == "c_call":
            owner = called.__module__ or type(called.__self__).__module__
            if owner not in SYSTEM or called.__name__ in COUNTING:
                return
        elif event != "call" or (code.co_flags & inspect.CO_GENERATOR and frame.f_lasti > 0):
            return
        self._left -= 1
        if self._left == 0:
            sys.setprofile(None)
            self.place = f"{code.co_qualname}, line {frame.f_lineno}, {event} {getattr(called, '__name__', '')}"
            if self._act is None:
                raise InjectedError(self.place)
            self._act()

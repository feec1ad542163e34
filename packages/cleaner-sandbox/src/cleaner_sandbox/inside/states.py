"""A session's state as its supervisor holds it: a process that has run user code, and may answer or not.

Whatever a state fails to do is the doing of the cells that made it: `BrokenStateError`, never the supervisor's own end.
"""

from __future__ import annotations

import contextlib
import os
import platform
import select
import signal
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from cleaner_sandbox.inside import state, wire
from cleaner_sandbox.inside.proc import MAPPING, Opened, Proc
from cleaner_sandbox.inside.slot import LOOK_EVERY
from cleaner_sandbox.inside.watch import PAGE

MOMENT = 0.0001
STOPPED = b"T"
DYING_SECONDS = 2.0
ANSWER_SECONDS = 10.0
"""A state that is waiting answers in milliseconds, on a crowded machine in tenths of a second."""
Check = Callable[[], bool]
RECVMSG = {"x86_64": b"47", "aarch64": b"212"}[platform.machine()]


class BrokenStateError(Exception):
    """A state is dead, or doesn't do what it is told."""


class Taken(NamedTuple):
    """What tells how much memory a process has taken, whoever shares it and whatever it has given back since."""

    faults: int = 0
    """How often it was given a page, or found one that it shares."""
    page_tables: int = 0
    """Bytes, all its own."""
    mappings: int = 0

    def since(self, before: Taken) -> int:
        """At most so many bytes more than `before`."""
        own = self.page_tables - before.page_tables + (self.mappings - before.mappings) * MAPPING
        return (self.faults - before.faults) * PAGE + max(0, own)


class State:
    """One interpreter that waits."""

    def __init__(self, pid: int, channel: socket.socket, number: int) -> None:
        self.pid = pid
        self.pidfd = os.pidfd_open(pid)
        self.channel = channel
        self.number = number
        self.depth = 0
        """How many layers its files are spread over."""
        self.layer = ""
        """The topmost of them, in which its folder and open files are."""
        self.shared = False
        """Whether the cells after it may have written to that one."""
        self.folder = ""
        self.opened: Opened = []
        self.has_folders = False
        """Whether folders are among them."""
        self.obstacles = 0
        self.frozen = False
        """Whether it was stopped, as a checkpoint."""
        self.ran = 0
        """Nanoseconds that it had run when it was stopped."""
        self.taken = Taken()
        """What it had when it was last looked at."""

    def command(self, message: tuple[Any, ...], files: list[int], within_limits: Check) -> None:
        """Tell it what to do, whatever was done to it before."""
        data = memoryview(wire.pack(message))
        deadline = time.monotonic() + ANSWER_SECONDS
        drained(self.channel)
        try:
            signal.pidfd_send_signal(self.pidfd, signal.SIGCONT)
            while data:
                _wait(self.channel, select.POLLOUT, deadline, within_limits)
                sent = socket.send_fds(self.channel, [data], files) if files else self.channel.send(data)
                data, files = data[sent:], []
        except OSError as error:
            raise BrokenStateError from error

    def close(self) -> None:
        """Kill it."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        os.close(self.pidfd)
        self.channel.close()


def channel() -> tuple[socket.socket, socket.socket]:
    """The supervisor's end, on which the kernel says who wrote to the other, and that other end."""
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    ours.setblocking(False)
    return ours, theirs


def hear(ours: socket.socket, expected: bytes, within_limits: Check) -> int:
    """Wait for a state's one-byte answer; the process that gave it."""
    _wait(ours, select.POLLIN, time.monotonic() + ANSWER_SECONDS, within_limits)
    try:
        said, credentials, _, _ = ours.recvmsg(1, socket.CMSG_SPACE(12))
    except OSError as error:
        raise BrokenStateError from error
    if said != expected:
        raise BrokenStateError
    return int.from_bytes(credentials[0][2][:4], "little")


def _wait(ours: socket.socket, event: int, deadline: float, within_limits: Check) -> None:
    """Until a channel can be read or written. A state that makes us wait may be up to something."""
    poll = select.poll()
    poll.register(ours, event)
    while not poll.poll(LOOK_EVERY):
        if time.monotonic() > deadline or not within_limits():
            raise BrokenStateError


def drained(ours: socket.socket) -> bytes:
    """Read a channel empty, and return the end of what was in it; empty if there was nothing."""
    tail = b""
    with contextlib.suppress(OSError):  # nothing more there, or nobody at the other end
        while data := os.read(ours.fileno(), wire.CHUNK):
            tail = (tail + data)[-2:]
    return tail


def stop(proc: Proc, checkpoint: State, within_limits: Check) -> None:
    """Stop a checkpoint as soon as it waits, before anything runs in its fork.

    It is an interpreter in which cells have run, and after its fork it runs some steps to get back to waiting: who
    changes those can have it go on, or start threads.
    """
    deadline = time.monotonic() + ANSWER_SECONDS
    wait_for(proc, checkpoint, within_limits)
    if len(proc.names(f"{checkpoint.pid}/task")) > 1:
        raise BrokenStateError
    signal.pidfd_send_signal(checkpoint.pidfd, signal.SIGSTOP)
    while not _has_stopped(proc, str(checkpoint.pid)):
        if time.monotonic() > deadline:
            raise BrokenStateError
        time.sleep(MOMENT)
    checkpoint.ran, checkpoint.frozen = proc.ran(str(checkpoint.pid)), True


def _has_stopped(proc: Proc, pid: str) -> bool:
    """Whether a process is stopped and has left its CPU: only then has the kernel added up how long it ran."""
    if proc.stat(pid)[0] != STOPPED:
        return False
    try:
        return proc.read(f"{pid}/syscall") != b"running\n"
    except PermissionError:  # not everywhere is this shown
        return True


def wait_for(proc: Proc, waiting: State, within_limits: Check) -> None:
    """Wait until a state waits for its next command."""
    deadline = time.monotonic() + ANSWER_SECONDS
    looked = time.monotonic()
    while not waits(proc, waiting.pid):
        now = time.monotonic()
        if now > deadline or (now > looked + LOOK_EVERY / 1000 and not within_limits()):
            raise BrokenStateError
        looked = now if now > looked + LOOK_EVERY / 1000 else looked
        time.sleep(MOMENT)


def stands_still(proc: Proc, checkpoint: State) -> bool:
    """Whether a checkpoint has done nothing since it was stopped. Any process of its session can wake or kill it."""
    try:
        return proc.stat(str(checkpoint.pid))[0] == STOPPED and proc.ran(str(checkpoint.pid)) == checkpoint.ran
    except OSError:
        return False


def living(states: Iterable[State]) -> set[str]:
    """The process numbers of those that haven't ended: the number of one that has may be another's by now."""
    states = list(states)
    poll = select.poll()
    for each in states:
        poll.register(each.pidfd, select.POLLIN)
    ended = {descriptor for descriptor, _ in poll.poll(0)}
    return {str(each.pid) for each in states if each.pidfd not in ended}


def waits(proc: Proc, pid: int) -> bool:
    """Whether a state really sits and waits for its next command: it may say that a cell has ended and go on."""
    try:
        call, *arguments = _system_call(proc, str(pid))
    except OSError:
        return False
    return call == RECVMSG and int(arguments[0], 16) == state.CHANNEL_FD


def _system_call(proc: Proc, pid: str) -> list[bytes]:
    """The system call that a process is in, and its arguments."""
    try:
        return proc.read(f"{pid}/syscall").split()
    except PermissionError:  # not everywhere is this shown
        asleep = proc.stat(pid)[0] == b"S"
        return [RECVMSG, b"%x" % state.CHANNEL_FD] if asleep else [b"running"]

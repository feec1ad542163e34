"""The keeper of a node: binds the address, starts the front on it, and starts it again if it dies.

The keeper does nothing that could fail: it reads no request and runs no program. While the front is away, connections
wait in the socket's backlog. Calls that the dead front had taken are lost with it; their callers see the connection
break and send them again, here or elsewhere (`cleaner_rl.sandbox.client` does).

Limits: a keeper that is killed takes its front along (by the parent-death signal); whoever runs it must start it again.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import ipaddress
import itertools
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from cleaner_rl.sandbox.inside import folders
from cleaner_rl.sandbox.service.config import BACKLOG, BROKEN, UNUSABLE, ServiceConfig
from cleaner_rl.sandbox.wire import encode

PR_SET_PDEATHSIG = 1
SCRATCH = "cleaner-keeper-"
QUICK_SECONDS = 10.0
LONGEST_PAUSE = 5.0
"""A front that dies so soon after it started is started again after a pause that doubles each time, up to this."""
FIRST_TRIES = 3
"""A node that never came up ends when the slots of so many fronts didn't start."""
NEVER_UP = "no slot started, in {} tries; `cleaner doctor` says what this machine can do"


class UnsafeBindError(ValueError):
    """The address can be reached from other machines, and there is no token."""


def bind(host: str, port: int, config: ServiceConfig) -> socket.socket:
    """A bound socket; only a loopback address without a token file."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    if config.token_file is None and not ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback:
        raise UnsafeBindError(
            f"{host} can be reached from other machines: give a --token-file, or bind to a loopback address"
        )
    bound = socket.socket(family, kind, protocol)
    with contextlib.ExitStack() as stack:
        stack.callback(bound.close)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(BACKLOG)
        stack.pop_all()
    return bound


class Keeper:
    """Keeps one front alive."""

    def __init__(self, listening: socket.socket, config: ServiceConfig) -> None:
        self._listening = listening
        self._settings = encode(config).decode()
        self._front: subprocess.Popen[bytes] | None = None
        self._stopping = False

    def run(self) -> int:
        """Keep it until told to stop; the exit code of the last front."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        quick = broken = 0
        for fronts in itertools.count(1):
            begun = time.monotonic()
            with scratch() as folder:
                code = self._run_front(folder)
            if self._stopping or code in (0, UNUSABLE):
                break
            broken += code == BROKEN
            if broken == fronts == FIRST_TRIES:
                sys.stdout.buffer.write(encode({"event": "unusable", "message": NEVER_UP.format(fronts)}) + b"\n")
                return UNUSABLE
            quick = quick + 1 if time.monotonic() - begun < QUICK_SECONDS else 0
            self._pause(min(LONGEST_PAUSE, 0.1 * 2**quick) if quick > 1 else 0.0)
            if self._stopping:
                return 0
        return code if code >= 0 else 128 - code

    def _run_front(self, folder: str) -> int:
        fd = self._listening.fileno()
        command = [sys.executable, "-m", "cleaner_rl.sandbox.service.front", str(fd), self._settings]
        # Interrupts typed at a terminal reach the whole process group; the front is told by the keeper alone.
        self._front = subprocess.Popen(
            command,
            pass_fds=[fd],
            start_new_session=True,
            preexec_fn=_die_with_parent,
            env={**os.environ, "TMPDIR": folder},
        )
        if self._stopping:
            self._front.terminate()
        return self._front.wait()

    def _stop(self, number: int, _: FrameType | None) -> None:
        self._stopping = True
        if self._front is not None and self._front.poll() is None:
            # The front stops accepting; with the keeper's copy open, the kernel would go on taking connections for it.
            self._listening.close()
            self._front.send_signal(number)

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._stopping and time.monotonic() < until:
            time.sleep(0.05)


@contextlib.contextmanager
def scratch() -> Iterator[str]:
    """A folder for a front's files, gone when the front is: one that is killed can't clean up after itself.

    A killed keeper can't either, so the folders that no keeper holds any more go first. Each is held by a lock, because
    a process id says nothing when machines or containers share the folder for temporary files.
    """
    everyone = Path(tempfile.gettempdir())
    for left in everyone.glob(f"{SCRATCH}*"):
        with contextlib.suppress(OSError), _held(left):
            folders.remove(str(left))
    folder = Path(tempfile.mkdtemp(prefix=SCRATCH))
    with _held(folder):
        folder.chmod(0o711)  # slots run under uids of their own, and have to get to what is theirs
        try:
            yield str(folder)
        finally:
            folders.remove(str(folder))


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


_libc = ctypes.CDLL(None, use_errno=True)


def _die_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

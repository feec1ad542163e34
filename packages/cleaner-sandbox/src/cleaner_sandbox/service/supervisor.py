"""The supervisor of a node: binds the address, starts the server on it, and starts it again if it dies.

The supervisor does nothing that could fail: it reads no request and runs no program. While the server is away,
connections wait in the socket's backlog. Calls that the dead server had taken are lost with it; their callers see the
connection break and send them again, here or elsewhere (`cleaner_sandbox.client` does).

Limits: a supervisor that is killed takes its server along (by the parent-death signal); whoever runs it must start it
again.
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
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import msgspec

from cleaner_sandbox.inside.layers import remove_folder
from cleaner_sandbox.node.config import NodeConfig
from cleaner_sandbox.protocol.wire import encode

BACKLOG = 4096
"""Connections that wait to be accepted: a burst, or the time that a server takes to start again."""
UNUSABLE = 78
"""The server's exit code for settings with which starting again can't help (EX_CONFIG)."""
BROKEN = 75
"""The server's exit code where its slots didn't start, which may pass (EX_TEMPFAIL)."""
PR_SET_PDEATHSIG = 1
SCRATCH = "cleaner-supervisor-"
QUICK_SECONDS = 10.0
LONGEST_PAUSE = 5.0
"""A server that dies so soon after its start is started again after a pause that doubles each time, up to this."""
FIRST_TRIES = 3
"""A node that never came up ends when the slots of so many servers didn't start."""
NEVER_UP = "no slot started, in {} tries; the lines before this one say why"


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """How a node is served."""

    node: NodeConfig
    most_waiting: int = 65_536
    """Calls in the queue."""
    most_held_mb: int = 2_048
    """Request bodies being answered and results that are not read yet, together."""
    most_body_mb: int = 64
    """One request body; JSON has a lower bound (`http.MOST_JSON`)."""
    token_file: str | None = None
    """See `tenants`; None: everybody may call. Text, not a `Path`: the supervisor passes it on as JSON."""
    host: str = "localhost"
    """The name that it is bound to: without tokens, requests that name another one are refused (`app`)."""
    log_code: bool = False
    drain_seconds: int = 30
    """How long runs may go on after a request to stop."""


def to_text(config: ServiceConfig) -> str:
    """Return a configuration as the JSON that a server gets as its argument."""
    return msgspec.json.encode(config, enc_hook=os.fspath).decode()


def from_text(text: str) -> ServiceConfig:
    """Read a configuration that `to_text` has written. Raises `msgspec.DecodeError`."""
    return msgspec.json.decode(text, type=ServiceConfig, dec_hook=lambda kind, path: kind(path))


class UnsafeBindError(ValueError):
    """The address can be reached from other machines, and there is no token."""


def bind(host: str, port: int, *, tokens: bool) -> socket.socket:
    """Return a bound socket. Raises `UnsafeBindError` for an address that is not loopback where no token is needed."""
    try:
        return _bound(host, port, tokens)
    except OSError as error:
        raise OSError(error.errno, f"{host}:{port} can't be bound to: {error.strerror}") from error


def _bound(host: str, port: int, tokens: bool) -> socket.socket:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    if not tokens and not ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback:
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


class Supervisor:
    """Keeps one server alive."""

    def __init__(self, listening: socket.socket, config: ServiceConfig) -> None:
        self._listening = listening
        self._settings = to_text(config)
        self._server: subprocess.Popen[bytes] | None = None
        self._stopping = False

    def run(self) -> int:
        """Keep it alive until a signal says to stop; return the exit code of the last server."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        quick = broken = 0
        for tries in itertools.count(1):
            begun = time.monotonic()
            with scratch() as folder:
                code = self._run_server(folder)
            if self._stopping or code in (0, UNUSABLE):
                break
            broken += code == BROKEN
            if broken == tries == FIRST_TRIES:
                sys.stdout.buffer.write(encode({"event": "unusable", "message": NEVER_UP.format(tries)}) + b"\n")
                return UNUSABLE
            quick = quick + 1 if time.monotonic() - begun < QUICK_SECONDS else 0
            self._pause(min(LONGEST_PAUSE, 0.1 * 2**quick) if quick > 1 else 0.0)
            if self._stopping:
                return 0
        return code if code >= 0 else 128 - code

    def _run_server(self, folder: str) -> int:
        fd = self._listening.fileno()
        command = [sys.executable, "-m", f"{__package__}.server", str(fd), self._settings]
        # Interrupts typed at a terminal reach the whole process group; the server hears of it from us alone.
        self._server = subprocess.Popen(
            command,
            pass_fds=[fd],
            start_new_session=True,
            preexec_fn=_die_with_parent,
            env={**os.environ, "TMPDIR": folder},
        )
        if self._stopping:
            self._server.terminate()
        return self._server.wait()

    def _stop(self, number: int, _: FrameType | None) -> None:
        self._stopping = True
        if self._server is not None and self._server.poll() is None:
            # The server stops accepting; with our copy open, the kernel would go on taking connections for it.
            self._listening.close()
            self._server.send_signal(number)

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._stopping and time.monotonic() < until:
            time.sleep(0.05)


@contextlib.contextmanager
def scratch() -> Iterator[str]:
    """Make a folder for a server's files, gone when the server is: one that is killed can't clean up after itself.

    A killed supervisor can't either, so the folders that no supervisor holds any more go first. Each is held by a lock,
    because a process id says nothing when machines or containers share the folder for temporary files.
    """
    everyone = Path(tempfile.gettempdir())
    for left in everyone.glob(f"{SCRATCH}*"):
        with contextlib.suppress(OSError), _held(left):
            remove_folder(str(left))
    folder = Path(tempfile.mkdtemp(prefix=SCRATCH))
    with _held(folder):
        folder.chmod(0o711)  # slots run under uids of their own, and have to get to what is theirs
        try:
            yield str(folder)
        finally:
            remove_folder(str(folder))


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

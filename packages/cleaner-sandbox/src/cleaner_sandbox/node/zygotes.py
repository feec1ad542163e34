"""The node's side of zygotes and slots: starts them, gives them work, notices their death.

A slot is reached by two socket pairs. On `control` the node sends numbers (limits, kill) and the slot answers with how
a run ended and the descriptors of what it left. `requests` is read by the run that waits in the slot, and by nobody
else. All runs of a slot read from the same stream, so a slot in which something was left unread is used no more: the
next run would take it for its own request.
"""

from __future__ import annotations

import asyncio
import contextlib
import marshal
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from cleaner_sandbox.inside import wire
from cleaner_sandbox.isolation import layout
from cleaner_sandbox.isolation.cgroups import SlotCgroup
from cleaner_sandbox.isolation.tiers import Layer
from cleaner_sandbox.node.verdict import RunExit

START_SECONDS = 60.0

# The package's own `__init__` would load the node into the zygote; an empty module stands in for it.
_BOOT = """
import importlib, sys, types
package, root, entry, channel = sys.argv[1:]
sys.modules[package] = types.ModuleType(package)
sys.modules[package].__path__ = [root]
getattr(importlib.import_module(package + ".inside.zygote"), entry)(int(channel))
"""

_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONUTF8": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "MPLBACKEND": "Agg",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TZ": "UTC",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",  # large arrays in huge pages
}


class SlotDiedError(Exception):
    """The supervisor of a slot is gone, and with it whatever ran there."""


class ZygoteError(RuntimeError):
    """A zygote, or a slot of it, could not start; the message says why."""


class Slot:
    """One supervisor, seen from the node."""

    def __init__(
        self, index: int, control: socket.socket, requests: socket.socket, died: Callable[[Slot], None]
    ) -> None:
        self.index = index
        self._control = control
        self._requests = requests
        self._died = died
        self._loop = asyncio.get_running_loop()
        self._pidfd = -1
        self._resized: asyncio.Future[None] | None = None
        self._running: asyncio.Future[tuple[RunExit, list[int]]] | None = None
        self._printing: Callable[[list[int]], None] | None = None
        self._unsent = memoryview(b"")
        self.alive = True
        self.cgroup: SlotCgroup | None = None
        self.started: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(control.fileno(), self._readable)

    @property
    def pid(self) -> int:
        """Of the supervisor, as the node sees it."""
        for line in Path(f"/proc/self/fdinfo/{self._pidfd}").read_text().splitlines():
            if line.startswith("Pid:"):
                return int(line.split()[1])
        return -1

    async def run(
        self,
        start: bytes,
        request: bytes,
        seconds: float,
        disk: bytes | None = None,
        printing: Callable[[list[int]], None] | None = None,
    ) -> tuple[RunExit, list[int]]:
        """Give the waiting run its request; returns how it ended and its descriptors, which are the caller's to close.

        `disk` changes the size of the run's folder first. `printing` gets the descriptors of the files that the run
        prints into, which become its own, if `start` asks for them. Raises `SlotDiedError` if the supervisor dies, or
        doesn't answer within `seconds`. If cancelled, the run is killed. A run that ended before it had read its whole
        request is answered, and its slot is killed.
        """
        watchdog = self._loop.call_later(seconds, self.kill)
        try:
            if disk is not None:
                self._resized = self._loop.create_future()
                self._control.send(disk)
                await self._resized
            self._running = self._loop.create_future()
            self._printing = printing
            self._control.send(start)
            sent = self._requests.send(request)
            if sent < len(request):
                self._unsent = memoryview(request)[sent:]
                self._loop.add_writer(self._requests, self._writable)
            ended = await self._running
            if self.alive and (self._unsent or self._unread()):
                self.kill()
            return ended
        except BaseException as error:  # whatever it was, nobody knows any more what the supervisor waits for
            self._give_up()
            if isinstance(error, OSError):
                raise SlotDiedError from error
            raise
        finally:
            watchdog.cancel()
            self._running = self._resized = self._printing = None

    def release_folder(self) -> None:
        """Say that nothing more will be read from the folder that came with a run's end."""
        with contextlib.suppress(OSError):
            self._control.send(b"f")

    def kill(self) -> None:
        """End the supervisor, and by that all that runs in its namespace."""
        if not self.alive:
            return
        self.alive = False
        self._loop.remove_reader(self._control.fileno())
        self._loop.remove_writer(self._requests)
        if self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            os.close(self._pidfd)
        self._control.close()
        self._requests.close()
        if not self.started.done():
            self.started.cancel()
        for waiting in (self._resized, self._running):
            if waiting is not None and not waiting.done():
                waiting.set_exception(SlotDiedError())
        self._died(self)

    def end(self) -> int:
        """Kill it; a descriptor, the caller's to close, that is readable once it is gone, or -1."""
        pidfd = os.dup(self._pidfd) if self.alive and self._pidfd >= 0 else -1
        self.kill()
        return pidfd

    def _give_up(self) -> None:
        """Kill it, and close what a run that ended in this very moment has handed over: nobody will take it."""
        self.kill()
        running = self._running
        if running is not None and running.done() and not running.cancelled() and running.exception() is None:
            close_all(running.result()[1])

    def _readable(self) -> None:
        try:
            message, descriptors, _, _ = socket.recv_fds(self._control, 64, 8)
        except OSError:
            message, descriptors = b"", []
        try:
            self._read(message, descriptors)
        except BaseException:  # what it said is lost, and whoever waits for it would wait for long
            close_all(descriptors)
            self.kill()
            raise

    def _read(self, message: bytes, descriptors: list[int]) -> None:
        if not message:
            self.kill()
        elif message[0] == wire.KIND_HELLO:
            self._pidfd = descriptors[0]
            self.started.set_result(None)
        elif message[0] == wire.KIND_DISK:
            if self._resized is not None and not self._resized.done():
                self._resized.set_result(None)
        elif message[0] == wire.KIND_DONE and self._running is not None and not self._running.done():
            self._running.set_result((RunExit._make(wire.DONE.unpack(message)), descriptors))
        elif message[0] == wire.KIND_OUTPUT and self._printing is not None:
            self._printing(descriptors)
        else:
            self._heard(message)
            close_all(descriptors)

    def _writable(self) -> None:
        try:
            self._unsent = self._unsent[self._requests.send(self._unsent) :]
        except BlockingIOError:
            return
        except OSError:
            self.kill()
            return
        if not self._unsent:
            self._unsent = memoryview(b"")  # an empty view of a request would hold on to all of it
            self._loop.remove_writer(self._requests)

    def _unread(self) -> bool:
        """Whether anything that was sent has not been read at the other end."""
        from fcntl import ioctl  # which Windows lacks
        from termios import TIOCOUTQ

        return any(ioctl(self._requests, TIOCOUTQ, bytes(4)))

    def _heard(self, message: bytes) -> None:
        """Something that a run doesn't send."""


def close_all(descriptors: Iterable[int]) -> None:
    """Close what a run handed over."""
    for descriptor in descriptors:
        os.close(descriptor)


SlotKind = TypeVar("SlotKind", bound=Slot)


class Zygote:
    """One exec'ed interpreter that slots are forked from."""

    def __init__(self, settings: Mapping[str, Any], died: Callable[[], None]) -> None:
        self._settings = settings
        self._died = died
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self.versions: Mapping[str, str] = {}

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid if self._process is not None else -1

    @property
    def alive(self) -> bool:
        """Whether slots can be asked for."""
        return self._channel is not None

    async def start(self) -> None:
        """Start the interpreter and wait until it has loaded its modules."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = launch("main", theirs.fileno(), self._environment())
        self._channel = ours
        ours.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(ours, wire.pack(dict(self._settings)))
        answer = await asyncio.wait_for(_answer(ours), START_SECONDS)
        if answer is None or "problem" in answer:
            self.kill()
            raise ZygoteError(answer["problem"] if answer else "the interpreter ended while it loaded its modules")
        self.versions = answer["versions"]
        loop.add_reader(ours.fileno(), self._readable)

    def fork(
        self,
        index: int,
        died: Callable[[Slot], None],
        kind: type[SlotKind],
        more: dict[str, Any] | None = None,
        cgroup: Sequence[int] = (),
    ) -> SlotKind:
        """Ask for a slot, or for a session's, with more settings, in a cgroup if its files are given.

        Raises `SlotDiedError` if the zygote is gone.
        """
        if self._channel is None:
            raise SlotDiedError
        control, their_control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        requests, their_requests = socket.socketpair()
        with their_control, their_requests:
            try:
                control.setblocking(False)
                requests.setblocking(False)
                message = marshal.dumps((index, kind is not Slot, more or {}))
                sockets = their_control.fileno(), their_requests.fileno()
                socket.send_fds(self._channel, [message], [*sockets, *cgroup])
                return kind(index, control, requests, died)
            except BaseException as error:
                control.close()
                requests.close()
                if isinstance(error, OSError):
                    raise SlotDiedError from error
                raise

    def kill(self) -> None:
        """End the interpreter; its slots live on until they are killed."""
        if self._channel is not None:
            asyncio.get_running_loop().remove_reader(self._channel.fileno())
            self._channel.close()
            self._channel = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _readable(self) -> None:
        """It says nothing after its start, so this is its end."""
        self.kill()
        self._died()

    def _environment(self) -> dict[str, str]:
        inherited = {} if Layer.ENVIRONMENT in self._settings["layers"] else dict(os.environ)
        return inherited | _ENVIRONMENT | {"PYTHONPATH": os.pathsep.join(self._settings["paths"])}


def launch(entry: str, channel: int, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a fresh interpreter that runs a function of `inside.zygote`, with a socket to talk to us."""
    package = __package__.partition(".")[0]
    root = str(Path(__file__).parents[1])
    return subprocess.Popen(
        [layout.interpreter(), "-sSPBuc", _BOOT, package, root, entry, str(channel)],
        env=environment,
        pass_fds=[channel],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
    )


async def _answer(channel: socket.socket) -> Any:
    """The one message that a zygote sends."""
    loop = asyncio.get_running_loop()
    data = b""
    while len(data) < wire.LENGTH.size or len(data) < wire.LENGTH.size + wire.LENGTH.unpack_from(data)[0]:
        part = await loop.sock_recv(channel, 65_536)
        if not part:
            return None
        data += part
    return marshal.loads(data[wire.LENGTH.size :])

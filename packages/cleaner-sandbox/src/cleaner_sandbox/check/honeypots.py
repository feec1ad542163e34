"""What is planted around a node before it is attacked: secrets to find, listeners to reach, a process to harm.

Everything planted bears the suite's own random name, is removed at the end, and holds nothing of value. A secret looks
like `sentinel-kind-0123456789abcdef`: if one of them appears in a result, it has leaked.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import cleaner_sandbox

KINDS = [
    "environment",
    "home",
    "private",
    "temporary",
    "ssh",
    "memory",
    "victim",
    "argument",
    "descriptor",
    "keyring",
    "sysv",
    "shm",
    "wire",
    "other",
    "tool",
]
OPEN_TEXT = "open to everybody"
ADD_KEY, SESSION_KEYRING = 248, -3
IPC_CREATE, IPC_REMOVE = 0o1000, 0

_VICTIM = "import os\nsecret = os.environ['CLEANER_CHECK_VICTIM']\nos.read(0, 1)"
"""It ends with whoever holds the other end of its stdin, even one that is killed."""
_libc = ctypes.CDLL(None, use_errno=True)
_libc.shmat.restype = ctypes.c_void_p


class Honeypots:
    """Plants everything on entering, and takes it away on leaving."""

    def __init__(self) -> None:
        self.name = f"cleaner-check-{secrets.token_hex(4)}"
        self.marker = f"BREACH-{secrets.token_hex(8)}"
        self.secrets = {kind: f"sentinel-{kind}-{secrets.token_hex(8)}" for kind in KINDS}
        self.home = Path.home() / f".{self.name}"
        self.temporary = Path("/tmp") / self.name
        self.values: dict[str, str] = {}
        """For the placeholders in programs."""
        self._stack = contextlib.ExitStack()
        self._post: _Post | None = None
        self._victim: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._files(stack)
            self._kernel_objects(stack)
            self._victim = self._start_victim(stack)
            self._post = stack.enter_context(_Post(self.name, self.home, self.secrets["wire"]))
            half = len(self.marker) // 2
            self.values = {
                "MARK_A": self.marker[:half],
                "MARK_B": self.marker[half:],
                "HOME": str(self.home),
                "TMP": str(self.temporary),
                "CWD": os.getcwd(),
                "HOST": socket.gethostname(),
                "PACKAGE": str(Path(cleaner_sandbox.__file__).parent),
                "NODE": str(os.getpid()),
                "VICTIM": str(self._victim.pid),
                "SHM": self.name,
                "OTHER": self.secrets["other"],
                **self._post.values,
                **self.values,
            }
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def leaks(self, text: str) -> list[str]:
        """The kinds of planted secrets in a text."""
        return [kind for kind, value in self.secrets.items() if value in text]

    def reached(self, nonce: str) -> bool:
        """Whether one of the listeners has heard from, or the prober reached, the attack with this nonce."""
        return self._post is not None and any(nonce.encode() in message for message in list(self._post.heard))

    def expose(self, nonce: str) -> None:
        """Plant files that anybody may change, for one attack: what others do at the same time isn't its doing."""
        for folder in (self.home, self.temporary):
            _write(folder / f"open-{nonce}", OPEN_TEXT, 0o666)

    def damage(self, nonce: str) -> list[str]:
        """Return what an attack has done to the honeypots; its own files are taken away, the rest is restored."""
        found = []
        for folder in (self.home, self.temporary):
            path = folder / f"open-{nonce}"
            try:
                state = path.stat()
                intact = path.read_text() == OPEN_TEXT and state.st_mode & 0o777 == 0o666 and state.st_mtime > 1000
            except OSError:
                intact = False
            if not intact:
                found.append(f"planted file changed: {folder.name}")
            path.unlink(missing_ok=True)
        if self._victim is not None and (state_of := _state(self._victim.pid)) not in "SR":
            found.append("planted process was killed" if state_of in "ZX" else "planted process was stopped")
            if state_of in "ZX":
                self._victim = self._start_victim(self._stack)
                self.values["VICTIM"] = str(self._victim.pid)
            else:
                self._victim.send_signal(signal.SIGCONT)
        return found

    def traces(self, nonce: str) -> list[str]:
        """Files on the host that bear an attack's nonce; they are removed."""
        found = []
        for folder in self._watched():
            with contextlib.suppress(OSError):
                for entry in os.scandir(folder):
                    if nonce in entry.name:
                        found.append(entry.path)
                        if entry.is_dir(follow_symlinks=False):
                            shutil.rmtree(entry.path, ignore_errors=True)
                        else:
                            os.unlink(entry.path)
        return found

    def _watched(self) -> set[str]:
        """Folders of the host where an attack might leave a file."""
        home = Path.home()
        named = (
            "/ /etc /usr /usr/lib /usr/bin /tmp /var/tmp /var/lib /dev/shm /run /run/lock /run/user/0 /opt /srv /root"
        )
        own = (self.home, self.temporary, home, home / ".cache", Path.cwd(), Path(sys.executable).parent)
        paths = (sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
        return {*named.split(), *map(str, own), *paths}

    def _files(self, stack: contextlib.ExitStack) -> None:
        for folder in (self.home, self.temporary):
            folder.mkdir(mode=0o755)
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        (self.home / ".ssh").mkdir()
        _write(self.home / "token", self.secrets["home"], 0o644)
        _write(self.home / "private", self.secrets["private"], 0o600)
        _write(self.home / ".ssh" / "id_ed25519", self.secrets["ssh"], 0o600)
        _write(self.home / "tool", f"#!/bin/sh\necho {self.secrets['tool']}\n", 0o755)
        _write(self.temporary / "token", self.secrets["temporary"], 0o644)
        shared = Path("/dev/shm") / self.name
        _write(shared, self.secrets["shm"], 0o644)
        stack.callback(shared.unlink, missing_ok=True)
        os.environ["CLEANER_CHECK_TOKEN"] = self.secrets["environment"]
        stack.callback(os.environ.pop, "CLEANER_CHECK_TOKEN", None)
        descriptor = os.memfd_create(self.name)
        os.write(descriptor, self.secrets["descriptor"].encode())
        os.set_inheritable(descriptor, True)  # as a careless service would leave it
        stack.callback(os.close, descriptor)

    def _kernel_objects(self, stack: contextlib.ExitStack) -> None:
        key = secrets.randbelow(1 << 30) + 1
        segment = _libc.shmget(key, 4096, IPC_CREATE | 0o644)
        if segment >= 0:
            address = _libc.shmat(segment, None, 0)
            ctypes.memmove(address, self.secrets["sysv"].encode(), len(self.secrets["sysv"]))
            _libc.shmdt(ctypes.c_void_p(address))
            stack.callback(_libc.shmctl, segment, IPC_REMOVE, None)
        self.values["SYSV"] = str(key)
        secret = self.secrets["keyring"].encode()
        size = ctypes.c_size_t(len(secret))
        _libc.syscall(ctypes.c_long(ADD_KEY), b"user", b"cleaner-check", secret, size, ctypes.c_long(SESSION_KEYRING))

    def _start_victim(self, stack: contextlib.ExitStack) -> subprocess.Popen[bytes]:
        """A process of the same user as the node's, with secrets wherever a process has any."""
        victim = subprocess.Popen(
            [sys.executable, "-S", "-c", _VICTIM, self.secrets["argument"]],
            env={"CLEANER_CHECK_VICTIM": self.secrets["victim"]},
            cwd=self.home,
            stdin=subprocess.PIPE,
            start_new_session=True,  # it has nothing to say when somebody interrupts the check
        )

        def end() -> None:
            victim.kill()
            victim.communicate()

        stack.callback(end)
        return victim


class _Post:
    """Listeners on loopback that note what they hear, and a prober that tries whether an attack listens."""

    def __init__(self, name: str, folder: Path, wire: str) -> None:
        self.heard: list[bytes] = []
        self.values: dict[str, str] = {}
        self._name = name
        self._folder = folder
        self._wire = wire.encode()
        self._over = threading.Event()
        self._selector = selectors.DefaultSelector()
        self._stack = contextlib.ExitStack()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._listen(stack)
            self._stack = stack.pop_all()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._hear, self._probe)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        self._selector.close()
        self._stack.close()

    def _listen(self, stack: contextlib.ExitStack) -> None:
        path = str(self._folder / "socket")
        abstract = f"\0{self._name}"
        inet, inet6, unix = socket.AF_INET, socket.AF_INET6, socket.AF_UNIX
        stream, datagram = socket.SOCK_STREAM, socket.SOCK_DGRAM
        for name, family, kind, address in (
            ("PORT", inet, stream, ("127.0.0.1", 0)),
            ("PORT6", inet6, stream, ("::1", 0)),
            ("UDP", inet, datagram, ("127.0.0.1", 0)),
            ("UDP6", inet6, datagram, ("::1", 0)),
            ("UNIX", unix, stream, path),
            ("ABSTRACT", unix, stream, abstract),
            ("", unix, datagram, f"{abstract}-datagram"),
        ):
            listener = stack.enter_context(socket.socket(family, kind))
            if family != unix:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # as a service with several workers
            with contextlib.suppress(OSError):  # there may be no IPv6 here
                listener.bind(address)
                if kind == stream:
                    listener.listen(64)
                self._selector.register(listener, selectors.EVENT_READ)
            if name:
                bound = listener.getsockname()
                self.values[name] = str(bound[1]) if family != unix else path if name == "UNIX" else self._name
        os.chmod(path, 0o666)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.values["LISTEN"] = str(free.getsockname()[1])
        master, slave = os.openpty()
        stack.callback(os.close, master)
        stack.callback(os.close, slave)
        self.values["PTY"] = os.ttyname(slave)
        with contextlib.suppress(OSError):
            os.chmod(self.values["PTY"], 0o666)
        self._selector.register(master, selectors.EVENT_READ)

    def _hear(self) -> None:
        while not self._over.is_set():
            for key, _ in self._selector.select(0.05):
                with contextlib.suppress(OSError):
                    if isinstance(key.fileobj, int):
                        self.heard.append(os.read(key.fileobj, 4096))
                    elif isinstance(key.fileobj, socket.socket):
                        self._answer(key.fileobj)

    def _answer(self, listener: socket.socket) -> None:
        if listener.type == socket.SOCK_DGRAM:
            message = listener.recv(4096)
            if message != self._wire:
                self.heard.append(message)
            return
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(0.2)
            if listener.family == socket.AF_UNIX:
                with contextlib.suppress(OSError):
                    socket.send_fds(connection, [b"hello"], [0])
            else:
                connection.sendall(b"hello")
            with contextlib.suppress(OSError):
                self.heard.append(connection.recv(4096))

    def _probe(self) -> None:
        """Now and then: send a secret over loopback, for those who sniff, and look whether somebody listens."""
        listen = ("127.0.0.1", int(self.values["LISTEN"]))
        own = ("127.0.0.1", int(self.values["PORT"]))
        while not self._over.wait(0.05):
            with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.sendto(self._wire, ("127.0.0.1", int(self.values["UDP"])))
            for family, address in (
                (socket.AF_INET, listen),
                (socket.AF_INET, own),
                (socket.AF_UNIX, f"\0{self._name}-listen"),
            ):
                with contextlib.suppress(OSError), socket.socket(family) as caller:
                    caller.settimeout(0.3)
                    caller.connect(address)
                    if (answer := caller.recv(64)) != b"hello":
                        self.heard.append(answer)


def _write(path: Path, text: str, mode: int) -> None:
    path.write_text(text)
    path.chmod(mode)


def _state(pid: int) -> str:
    """The kernel's letter for the state of a process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"

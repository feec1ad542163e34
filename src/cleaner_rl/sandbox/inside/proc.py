"""What the kernel says of processes, read from a `/proc` that shows one namespace."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable

BLOCK = 512
"""What `stat` counts in."""
MAPPING, LOCK, WATCHED, PIPE = 512, 256, 256, 65_536
"""Bytes that the kernel holds for a mapping, a lock on a file, a descriptor that an epoll watches, and a pipe: at most,
but for pipes that were made larger, of which a user has 64 MB together."""
MOST_MAPPINGS, LONGEST_TEXT = 65_530, 12 << 20
ENDLESS = 1 << 62
"""Bytes of a process that doesn't let itself be looked at."""
NULL = os.makedev(1, 3)
MASKS = (b"SigBlk:", b"SigPnd:", b"ShdPnd:")
Opened = list[tuple[int, str, int, int]]
"""Descriptor, path, flags and offset of open files."""


ENDED = (b"Z", b"X")
HIDING = 8
"""Looks at a process, in each of which all threads that it had just then have ended, after which it hides."""


def ended(fields: list[bytes]) -> bool:
    """Whether a process with these fields of `stat` has ended. If its first thread alone has, others live on."""
    return fields[0] in ENDED and int(fields[17]) <= 1


class Proc:
    """A `/proc`, held by a descriptor of its folder."""

    def __init__(self, descriptor: int) -> None:
        self._folder = descriptor

    def pids(self) -> list[str]:
        """All processes in it."""
        return [name for name in os.listdir(self._folder) if name.isdigit()]

    def read(self, path: str) -> bytes:
        """A file's content, of one that comes in one piece."""
        descriptor = os.open(path, os.O_RDONLY, dir_fd=self._folder)
        try:
            return os.read(descriptor, 4096)
        finally:
            os.close(descriptor)

    def maps(self, pid: str) -> bytes | None:
        """The list of a process's mappings; None if it is longer than any that isn't made to be long.

        There can be 65,530, and a path of 4,000 characters with each: to read that takes longer than a run may go
        unwatched.
        """
        return self._read_up_to(f"{pid}/maps", LONGEST_TEXT)

    def _read_up_to(self, path: str, most: int) -> bytes | None:
        """The content of a file; None if it is longer."""
        parts: list[bytes] = []
        with open(path, "rb", buffering=0, opener=self._open) as file:
            while most > 0 and (part := file.read(1 << 20)):
                parts.append(part)
                most -= len(part)
        return b"".join(parts) if most > 0 else None

    def _open(self, path: str, flags: int) -> int:
        return os.open(path, flags, dir_fd=self._folder)

    def names(self, path: str) -> list[str]:
        """What is in a folder."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY, dir_fd=self._folder)
        try:
            return os.listdir(descriptor)
        finally:
            os.close(descriptor)

    def short_link(self, path: str) -> str | None:
        """Where a link leads; None if that is a path which is too long for the kernel to tell."""
        try:
            return os.readlink(path, dir_fd=self._folder)
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            return None

    def has_timers(self, pid: str) -> bool:
        """Whether a process has timers that a fork lacks; not all kernels tell."""
        try:
            return bool(self.read(f"{pid}/timers"))
        except FileNotFoundError:
            return False

    def mount_of(self, path: str, folder: int | None = None) -> int:
        """The kernel's number of the mount that a path leads to, from this process's root or from a folder."""
        descriptor = os.open(path, os.O_PATH, dir_fd=folder)
        try:
            return _mount_in(self.read(f"self/fdinfo/{descriptor}"))
        finally:
            os.close(descriptor)

    def mounts(self, pid: str) -> set[int]:
        """The numbers of the mounts that a process's working folder and open files are in."""
        found = {self.mount_of(f"{pid}/cwd", self._folder)}
        for number in self.names(f"{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):  # closed while we looked
                found.add(_mount_in(self.read(f"{pid}/fdinfo/{number}")))
        return found

    def is_null(self, path: str) -> bool:
        """Whether a link leads to the null device."""
        return os.stat(path, dir_fd=self._folder).st_rdev == NULL

    def signals(self, pid: str) -> tuple[int, int]:
        """Signals that a process blocks, and those that were sent to it and wait, as bits."""
        lines = [line.split() for line in self.read(f"{pid}/status").split(b"\n")[1:]]
        masks = {line[0]: int(line[1], 16) for line in lines if line and line[0] in MASKS}
        return masks[b"SigBlk:"], masks[b"SigPnd:"] | masks[b"ShdPnd:"]

    def stat(self, pid: str) -> list[bytes]:
        """The fields of `stat` from the state on. The name before them may hold anything, parentheses too."""
        return self.read(f"{pid}/stat").rpartition(b")")[2].split()

    def dead(self, pid: str) -> bool:
        """Whether a process has ended, waited for or not."""
        try:
            return ended(self.stat(pid))
        except OSError:
            return True

    def holder(self, pid: str) -> str | None:
        """The thread of a process that shows what it holds: the first, or one that lives on after it.

        None if there is always another one than was seen just now: a process that hides.
        """
        for _ in range(HIDING):
            fields = self.stat(pid)
            if fields[0] not in ENDED or ended(fields):
                return pid
            for thread in self.names(f"{pid}/task"):
                with contextlib.suppress(OSError):  # it ended while we looked
                    if self.stat(thread)[0] not in ENDED:
                        return thread
        return None

    def exit_status(self, pid: str) -> int:
        """The wait status of a process that has ended and that its own parent hasn't waited for."""
        return int(self.stat(pid)[49])

    def threads(self, pid: str) -> dict[str, tuple[int, int]]:
        """Nanoseconds that each thread ran, and that it waited to run."""
        names = self.names(f"{pid}/task")
        if not names:  # the C library takes the end of the process for the end of the list
            raise ProcessLookupError
        times = {name: self.read(f"{pid}/task/{name}/schedstat").split() for name in names}
        return {name: (int(ran), int(waited)) for name, (ran, waited, _) in times.items()}

    def page_tables(self, pid: str) -> int:
        """Bytes of a process's page tables. They are no resident memory, and neither are pages of zeros."""
        # At the beginning of a line: the process's name is in there, too, and it may be any text of one line.
        _, _, rest = self.read(f"{pid}/status").partition(b"\nVmPTE:")
        return int(rest.split(maxsplit=1)[0]) * 1024 if rest else 0  # nothing of one that has ended

    def kernel_objects(self, pid: str) -> tuple[int, frozenset[str]]:
        """Bytes that the kernel holds for a process's mappings, locks and epolls, and the pipes that it has open.

        Slower than all else here: it reads the list of mappings and looks at each open file. Of each: anything that can
        be opened can be locked. What would take longer than a run may go unwatched is endless.
        """
        maps = self.maps(pid)
        mappings = MOST_MAPPINGS if maps is None else maps.count(b"\n")
        locks = watched = 0
        pipes: set[str] = set()
        left = LONGEST_TEXT
        for number in self.names(f"{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):  # closed while we looked
                told = self._read_up_to(f"{pid}/fdinfo/{number}", left)
                if told is None:
                    return ENDLESS, frozenset()
                left -= len(told)
                locks += told.count(b"\nlock:")
                watched += told.count(b"\ntfd:")
                path = self.short_link(f"{pid}/fd/{number}") or ""
                if path.startswith("pipe:"):
                    pipes.add(path)
        return mappings * MAPPING + locks * LOCK + watched * WATCHED, frozenset(pipes)

    def sockets(self) -> int:
        """All in our network namespace, those included that were closed while what they sent lies unread."""
        return int(self.read("self/net/sockstat").split()[2])

    def memory_files(self, pids: Iterable[str]) -> int:
        """Bytes of the files in memory that these processes have open, each file counted once."""
        held: dict[int, int] = {}
        for pid in pids:
            with contextlib.suppress(OSError):  # it ended while we looked
                folder = f"{self.holder(pid) or pid}/fd"
                for number in self.names(folder):
                    path = f"{folder}/{number}"
                    if (self.short_link(path) or "").startswith("/memfd:"):
                        found = os.stat(path, dir_fd=self._folder)
                        held[found.st_ino] = found.st_blocks * BLOCK
        return sum(held.values())

    def opened(self, pid: str, first: int, below: str) -> tuple[Opened, set[str]]:
        """The open files from descriptor `first` on, and which other kinds there are that a fork can't copy.

        Files outside the folder `below` come with an empty path.
        """
        opened: Opened = []
        others: set[str] = set()
        for number in sorted(map(int, self.names(f"{pid}/fd"))):
            if number < first:
                continue
            path = self.short_link(f"{pid}/fd/{number}")
            if path is None:
                others.add("long path")
            elif path.endswith(" (deleted)"):
                others.add("deleted file")
            elif path.startswith("/"):
                position, flags, *_ = self.read(f"{pid}/fdinfo/{number}").split(b"\n")
                inside = path if path.startswith(f"{below}/") else ""
                opened.append((number, inside, int(flags.split()[1], 8), int(position.split()[1])))
            else:
                kind = path.partition(":")[0]
                others.add(kind if kind in ("socket", "pipe") else "descriptor")
        return opened, others


def _mount_in(told: bytes) -> int:
    """The mount's number in what the kernel tells of a descriptor."""
    return int(told.partition(b"mnt_id:")[2].split(maxsplit=1)[0])

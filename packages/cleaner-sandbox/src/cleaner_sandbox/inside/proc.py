"""What the kernel says of processes, read from a `/proc` that shows one namespace."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

BLOCK = 512
"""What `stat` counts in."""
MAPPING, LINK, LOCK, WATCHED, NAME, PIPE = 512, 80, 256, 256, 768, 65_536
"""Bytes that the kernel holds for a mapping, for its link to one of each process that this one descends from, a lock on
a file, a descriptor that an epoll watches, a name in the list of an overlay's folder, and a pipe, at most."""
MOST_MAPPINGS, LONGEST_TEXT = 65_530, 12 << 20
MOST_LOCKS, LONGEST_LOOK = 4_096, 0.1
"""Locks of a process, of which no honest one has more than a handful, and seconds of our CPU that a look at its open
files takes: whoever opens or closes a file goes through all locks on it."""
LOOKS = 4
"""So many looks in a row must take too long before the process is held responsible."""
ENDLESS = 1 << 62
"""Bytes of a process that doesn't let itself be looked at."""
NULL = os.makedev(1, 3)
Seen = TypeVar("Seen")
MASKS = (b"SigBlk:", b"SigPnd:", b"ShdPnd:")
Opened = list[tuple[int, str, int, int]]
"""Descriptor, path, flags and offset of open files."""


ENDED = (b"Z", b"X")
EXITING = 0x4
"""The kernel's flag of a thread that is being ended."""
HIDING = 8
"""Looks at a process, in each of which all threads that it had just then have ended, after which it hides."""


def ending(fields: list[bytes]) -> bool:
    """Whether a thread with these fields of `stat` has ended, or is about to and has let go of all that it shared."""
    return fields[0] in ENDED or bool(int(fields[6]) & EXITING)


def ended(fields: list[bytes]) -> bool:
    """Whether a process with these fields of `stat` has ended. If its first thread alone has, others live on."""
    return fields[0] in ENDED and int(fields[17]) <= 1


class Proc:
    """A `/proc`, held by a descriptor of its folder."""

    def __init__(self, descriptor: int) -> None:
        self._folder = descriptor
        self.names_in_folder = 0
        """Names in a folder of the processes, at most, if the kernel keeps a list of them for each that is open."""

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

    def write_only(self, descriptor: int) -> int:
        """Another descriptor of a file that we have open, by which it can only be written."""
        return self._open(f"self/fd/{descriptor}", os.O_WRONLY | os.O_CLOEXEC)

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

    def mount_of(self, path: str) -> int:
        """The kernel's number of the mount that a path leads to: a whole one, or one of a process."""
        descriptor = os.open(path, os.O_PATH, dir_fd=self._folder)
        try:
            return _mount_in(self.read(f"self/fdinfo/{descriptor}"))
        finally:
            os.close(descriptor)

    def mounts(self, pid: str) -> set[int]:
        """The numbers of the mounts that a process's working folder and open files are in."""
        found = {self.mount_of(f"{pid}/cwd")}
        for number in self.names(f"{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):  # closed while we looked
                found.add(_mount_in(self.read(f"{pid}/fdinfo/{number}")))
        return found

    def is_null(self, path: str) -> bool:
        """Whether a link leads to the null device."""
        return os.stat(path, dir_fd=self._folder).st_rdev == NULL

    def is_folder(self, path: str) -> bool:
        """Whether a link leads to a folder."""
        return stat.S_ISDIR(os.stat(path, dir_fd=self._folder).st_mode)

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

        None if there is always another one than was seen just now: a process that hides. `ProcessLookupError` if all
        are ending: then no new ones come.
        """
        seen: set[str] | None = None
        for _ in range(HIDING):
            fields = self.stat(pid)
            if not ending(fields) or ended(fields):
                return pid
            threads = self.names(f"{pid}/task")
            for thread in threads:
                with contextlib.suppress(OSError):  # it ended while we looked
                    if not ending(self.stat(thread)):
                        return thread
            if seen is not None and seen.issuperset(threads):
                raise ProcessLookupError
            seen = set(threads)
        return None

    def through_holder(self, pid: str, look: Callable[[str], Seen]) -> Seen | None:
        """What a look at a process through one of its threads shows, if that thread lived throughout.

        Files of one that ends meanwhile are gone, one by one, as if they had been closed. None for a process that
        hides: each time another thread of it lives, and none for as long as a look takes.
        """
        for _ in range(HIDING):
            holder = self.holder(pid)
            if holder is None:
                return None
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                seen = look(holder)
                if not ending(self.stat(holder)):
                    return seen
            if self.dead(pid):
                raise ProcessLookupError
        return None

    def exit_status(self, pid: str) -> int:
        """The wait status of a process that has ended and that its own parent hasn't waited for."""
        return int(self.stat(pid)[49])

    def threads(self, pid: str) -> dict[str, tuple[int, int]]:
        """Nanoseconds that each thread ran, and that it waited to run."""
        names = self.names(f"{pid}/task")
        times: dict[str, tuple[int, int]] = {}
        for name in names:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended while we looked
                ran, waited, _ = self.read(f"{pid}/task/{name}/schedstat").split()
                times[name] = int(ran), int(waited)
        if not times:
            raise ProcessLookupError
        return times

    def ran(self, pid: str) -> int:
        """Nanoseconds that the first thread of a process ran."""
        return int(self.read(f"{pid}/schedstat").split()[0])

    def faults(self, pid: str) -> int:
        """Page faults of a process so far: without one it gets no page, whichever call asks for it."""
        fields = self.stat(pid)
        return int(fields[7]) + int(fields[9])

    def status_bytes(self, pid: str, *names: bytes) -> int:
        """Bytes that `status` tells of a process under these names, together; none of one that has ended."""
        lines = self.read(f"{pid}/status").split(b"\n")[1:]  # the first holds its name, which may be any text
        return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(names))

    def kernel_objects(self, pid: str) -> tuple[int, frozenset[str]]:
        """Bytes that the kernel holds for a process's mappings, locks, epolls and folders, and the pipes it has open.

        Slower than all else here: it reads the list of mappings and looks at each open file. Of each: anything that can
        be opened can be locked. What takes longer than a run may go unwatched is endless, if it does so each time:
        what other virtual machines take of ours is counted as our time, too.
        """
        for _ in range(LOOKS):
            found = self._objects_in_time(pid)
            if found is not None:
                return found
        return ENDLESS, frozenset()

    def _objects_in_time(self, pid: str) -> tuple[int, frozenset[str]] | None:
        """The same; None if it takes too long."""
        maps = self.maps(pid)
        mappings = MOST_MAPPINGS if maps is None else maps.count(b"\n")
        locks = watched = folders = 0
        pipes: set[str] = set()
        left, until = LONGEST_TEXT, time.thread_time() + LONGEST_LOOK
        for number in self.names(f"{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):  # closed while we looked
                told = self._read_up_to(f"{pid}/fdinfo/{number}", left)
                if told is None:
                    return ENDLESS, frozenset()
                if time.thread_time() > until:
                    return None
                left -= len(told)
                locks += told.count(b"\nlock:")
                watched += told.count(b"\ntfd:")
                path = self.short_link(f"{pid}/fd/{number}") or ""
                if path.startswith("pipe:"):
                    pipes.add(path)
                # Each open one can hold a list of its own, with names that are gone since.
                folders += bool(self.names_in_folder) and self.is_folder(f"{pid}/fd/{number}")
        if locks > MOST_LOCKS:
            return ENDLESS, frozenset()
        of_mappings = mappings * (MAPPING + LINK * self._ancestors(pid))
        of_files = locks * LOCK + watched * WATCHED + folders * self.names_in_folder * NAME
        return of_mappings + of_files, frozenset(pipes)

    def _ancestors(self, pid: str) -> int:
        """How many processes a process descends from, as far as they live."""
        found = 0
        while (pid := self.stat(pid)[1].decode()) not in ("0", "1"):
            found += 1
        return found

    def sockets(self) -> int:
        """All in our network namespace, those included that were closed while what they sent lies unread."""
        return int(self.read("self/net/sockstat").split()[2])

    def memory_files(self, pids: Iterable[str]) -> int:
        """Bytes of the files in memory that these processes have open, each file counted once."""
        held: dict[int, int] = {}
        for pid in pids:
            with contextlib.suppress(OSError):  # it ended while we looked
                files = self.through_holder(pid, self._memory_files_of)
                held.update({0: ENDLESS} if files is None else files)
        return sum(held.values())

    def _memory_files_of(self, pid: str) -> dict[int, int]:
        """Bytes of the files in memory that a process has open, by the kernel's number of the file."""
        held: dict[int, int] = {}
        for number in self.names(f"{pid}/fd"):
            path = f"{pid}/fd/{number}"
            with contextlib.suppress(FileNotFoundError):  # closed while we looked
                if (self.short_link(path) or "").startswith("/memfd:"):
                    found = os.stat(path, dir_fd=self._folder)
                    held[found.st_ino] = found.st_blocks * BLOCK
        return held

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

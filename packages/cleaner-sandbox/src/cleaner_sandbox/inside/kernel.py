"""System calls that Python's standard library lacks."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Callable
from signal import SIG_BLOCK
from typing import Any

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_MOVE = 8192
MS_REC = 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2
AT_FDCWD = -100
AT_EMPTY_PATH = 0x1000
OPEN_TREE_CLONE = 1
MOVE_MOUNT_F_EMPTY_PATH = 4
MOUNT_ATTR_IDMAP = 0x100000

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_KEEPCAPS = 8
PR_SET_SECCOMP = 22
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_SET_THP_DISABLE = 41
SECCOMP_MODE_FILTER = 2
SECCOMP_SET_MODE_FILTER = 1
SECCOMP_NEW_LISTENER = 8
SECCOMP_RECEIVE, SECCOMP_SEND = 0xC0502100, 0xC0182101
"""The requests of `ioctl` by which a supervisor reads what a filter asks, and answers it."""
CAP_DAC_READ_SEARCH = 2

FALLOC_FL_KEEP_SIZE = 1
FALLOC_FL_PUNCH_HOLE = 2
LONGEST_FILE = ctypes.c_long((1 << 63) - (1 << 21))

PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}.get(platform.machine(), -1)
SECCOMP = {"x86_64": 317, "aarch64": 277}.get(platform.machine(), -1)
RT_SIGPROCMASK = {"x86_64": 14, "aarch64": 135}.get(platform.machine(), -1)
ALL_SIGNALS = ctypes.c_uint64(-1)
OPEN_TREE = 428
MOVE_MOUNT = 429
MOUNT_SETATTR = 442
LANDLOCK_CREATE_RULESET = 444
LANDLOCK_ADD_RULE = 445
LANDLOCK_RESTRICT_SELF = 446


class _NotLinux:
    """Every call fails: the package can be imported anywhere, and a node refuses to start."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        return lambda *_: -1


# PyDLL keeps the GIL: none of these calls blocks, and a fork must not happen between two of Python's own steps.
_libc: Any = ctypes.PyDLL(None, use_errno=True) if sys.platform == "linux" else _NotLinux()
# No argument types are declared: converting to them would touch memory, and a run pays for each page it touches. What
# isn't a small number is therefore passed as a ctypes object, made once.
_fork = _libc.fork
_unshare = _libc.unshare
_mount = _libc.mount
_umount2 = _libc.umount2
_prctl = _libc.prctl
_syscall = _libc.syscall
_close_range = _libc.close_range
_syscall.restype = ctypes.c_long


def _check(value: int, what: str) -> int:
    if value < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return value


def fork() -> int:
    """Fork without Python's at-fork hooks: they touch hundreds of pages and re-seed `random`.

    Right only in a process with a single thread, which zygotes, slots and checkpointable sessions are.
    """
    return _check(_fork(), "fork")


def unshare(flags: int) -> None:
    """Give this process its own namespaces."""
    _check(_unshare(flags), "unshare")


class Mount:
    """A file system to be mounted, again and again if need be."""

    def __init__(self, source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
        texts = (source, target, kind, options or None)
        source_, target_, kind_, options_ = (ctypes.c_char_p(None if text is None else text.encode()) for text in texts)
        self._arguments = (source_, target_, kind_, ctypes.c_ulong(flags), options_)
        self._target = target_

    def mount(self) -> None:
        """Put it into the tree."""
        _check(_mount(*self._arguments), "mount")

    def umount(self) -> None:
        """Take it away from the tree; it is gone when its last user is."""
        _check(_umount2(self._target, MNT_DETACH), "umount")


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    """Mount a file system."""
    try:
        Mount(source, target, kind, flags, options).mount()
    except OSError as error:
        raise OSError(error.errno, f"mount {target}: {os.strerror(error.errno or 0)}") from None


def mapped_tree(path: str, namespace: int) -> int:
    """A read-only view of a folder that is not mounted anywhere yet, with its owners as a user namespace maps them."""
    named = ctypes.c_char_p(path.encode())
    tree = _check(_syscall(OPEN_TREE, AT_FDCWD, named, OPEN_TREE_CLONE | os.O_CLOEXEC), f"open_tree {path}")
    attributes = struct.pack("=QQQQ", MOUNT_ATTR_IDMAP | MS_RDONLY | MS_NOSUID | MS_NODEV, 0, 0, namespace)
    changes = ctypes.c_char_p(attributes)
    empty = ctypes.c_char_p(b"")
    _check(_syscall(MOUNT_SETATTR, tree, empty, AT_EMPTY_PATH, changes, len(attributes)), f"mount_setattr {path}")
    return tree


def attach(tree: int, target: str) -> None:
    """Mount what `mapped_tree` gave."""
    empty, named = ctypes.c_char_p(b""), ctypes.c_char_p(target.encode())
    _check(_syscall(MOVE_MOUNT, tree, empty, AT_FDCWD, named, MOVE_MOUNT_F_EMPTY_PATH), f"move_mount {target}")
    os.close(tree)


def pivot_root(root: str) -> None:
    """Make `root` the only file system this process sees."""
    os.chdir(root)
    dot = ctypes.c_char_p(b".")
    _check(_syscall(PIVOT_ROOT, dot, dot), "pivot_root")
    _check(_umount2(dot, MNT_DETACH), "umount")
    os.chdir("/")


def prctl(option: int, argument: int) -> None:
    """Set one attribute of this process."""
    _check(_prctl(option, argument, 0, 0, 0), "prctl")


GROUP = "/proc/{}/autogroup"
"""The group of a session's processes, which the scheduler gives one share of the CPUs."""


def nice_of_group(pid: int) -> int:
    """How much a process's group gives way to others; 0 if it has none, as init's first children haven't."""
    try:
        with open(GROUP.format(pid)) as group:
            return int(group.read().rpartition("nice")[2] or 0)
    except OSError:
        return 0


def go_first(nice: int) -> None:
    """Have this process's group served before those of the runs; root's to ask."""
    with contextlib.suppress(OSError), open(GROUP.format("self"), "w") as group:
        group.write(str(nice))


def block_signals() -> None:
    """Block every signal that can be, the C library's own two included, which its functions leave out."""
    _check(_syscall(RT_SIGPROCMASK, SIG_BLOCK, ctypes.byref(ALL_SIGNALS), None, 8), "rt_sigprocmask")


def capabilities() -> int:
    """The rights of root that this process has, a bit each."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1], 16) for line in file if line.startswith("CapEff:"))


def drop_capabilities(but: int = 0) -> None:
    """Be root in name only: what root may do beyond its own files is gone for good."""
    version_3 = 0x20080522
    header = ctypes.c_char_p(struct.pack("=Ii", version_3, 0))
    _check(_libc.capset(header, ctypes.c_char_p(struct.pack("=6I", but, but, 0, 0, 0, 0))), "capset")


def become(uid: int) -> None:
    """Be a user of this number for good, who may list and read what root may: the interpreter may be in root's home."""
    reading = capabilities() & 1 << CAP_DAC_READ_SEARCH
    prctl(PR_SET_KEEPCAPS, 1)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    drop_capabilities(reading)
    prctl(PR_SET_DUMPABLE, 1)  # or no process of this user could look at another's memory


def set_times(path: str, times: bytes | None) -> None:
    """Set when a file was read and written, to what `utimensat` takes; None: to now."""
    _check(_libc.utimensat(AT_FDCWD, ctypes.c_char_p(path.encode()), times, 0), "utimensat")


def empty_for_good(descriptor: int) -> None:
    """Free the memory of a file in memory, whoever has it open; nobody writes to it again. Its size stays."""
    import fcntl  # which Windows lacks

    mode = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
    with contextlib.suppress(PermissionError):  # where no filter keeps a program from sealing its outputs itself
        _check(_libc.fallocate(descriptor, mode, ctypes.c_long(0), LONGEST_FILE), "fallocate")
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)


def close_from(first: int) -> None:
    """Close every descriptor from `first` on."""
    _check(_close_range(first, 0x7FFFFFFF, 0), "close_range")


class Program(ctypes.Structure):
    """A seccomp filter as the kernel takes it."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))

    def __init__(self, code: bytes) -> None:
        self._buffer = ctypes.create_string_buffer(code, len(code))
        super().__init__(len(code) // 8, ctypes.addressof(self._buffer))
        self._address = ctypes.c_void_p(ctypes.addressof(self))

    def install(self) -> None:
        """Filter this process's system calls from here on. Needs no-new-privileges or CAP_SYS_ADMIN."""
        _check(_prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, self._address, 0, 0), "seccomp")

    def listen(self) -> int:
        """Filter as `install` does, and return a descriptor where the filter asks about calls that it doesn't judge."""
        return _check(_syscall(SECCOMP, SECCOMP_SET_MODE_FILTER, SECCOMP_NEW_LISTENER, self._address), "seccomp")


def own_process_only(calls: tuple[int, ...], pid: int) -> Program:
    """A filter that lets this process send signals to itself alone; `calls`: the numbers of those that send any."""
    load, jump_equal, answer = 0x20, 0x15, 0x06
    number, first_argument = 0, 16
    allow, refuse = 0x7FFF0000, 0x00050000 | errno.EPERM
    code = (
        (load, 0, 0, number),
        *((jump_equal, left, 0, call) for left, call in zip(range(len(calls), 0, -1), calls, strict=True)),
        (answer, 0, 0, allow),
        (load, 0, 0, first_argument),
        (jump_equal, 0, 1, pid),
        (answer, 0, 0, allow),
        (answer, 0, 0, refuse),
    )
    return Program(b"".join(struct.pack("=HBBI", *instruction) for instruction in code))


def landlock_abi() -> int:
    """The version of landlock that the kernel speaks; 0 if none."""
    version: int = _syscall(LANDLOCK_CREATE_RULESET, None, 0, 1)
    return max(0, version)


_FILE_RIGHTS = {1: 0x1FFF, 2: 0x3FFF, 3: 0x7FFF, 4: 0x7FFF, 5: 0xFFFF}
LANDLOCK_READ = 0b1101
"""Execute, read a file, list a folder."""
LANDLOCK_ALL = 0xFFFF
LANDLOCK_READ_FILE = 0b100
LANDLOCK_WRITE_FILE = 0b110


class Landlock:
    """Which paths a process may use, each with what is below it: made once, entered by each run.

    A rule about a folder holds for what is mounted in that folder later, but not for what is mounted on it. From ABI 4
    on also no TCP, from ABI 6 on no signals to, and no abstract sockets of, anybody outside.
    """

    def __init__(self, abi: int, rules: list[tuple[str, int]]) -> None:
        everything = _FILE_RIGHTS[min(abi, 5)]
        size = 24 if abi >= 6 else 16 if abi >= 4 else 8
        networks, scopes = (3 if abi >= 4 else 0), (3 if abi >= 6 else 0)
        attributes = ctypes.c_char_p(struct.pack("=QQQ", everything, networks, scopes))
        self._ruleset = _check(_syscall(LANDLOCK_CREATE_RULESET, attributes, size, 0), "landlock")
        for path, rights in rules:
            try:
                descriptor = os.open(path, os.O_PATH)
            except PermissionError:  # what can't be reached needs no rule
                continue
            rule = ctypes.c_char_p(struct.pack("=Qi", rights & everything, descriptor))
            _check(_syscall(LANDLOCK_ADD_RULE, self._ruleset, 1, rule, 0), f"landlock {path}")
            os.close(descriptor)

    def enter(self) -> None:
        """Allow this process nothing else from here on."""
        _check(_syscall(LANDLOCK_RESTRICT_SELF, self._ruleset, 0), "landlock")

"""System calls that Python's standard library lacks."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

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
MS_REC = 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_MODE_FILTER = 2

PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}[platform.machine()]
LANDLOCK_CREATE_RULESET = 444
LANDLOCK_ADD_RULE = 445
LANDLOCK_RESTRICT_SELF = 446

# PyDLL keeps the GIL: none of these calls blocks, and a fork must not happen between two of Python's own steps.
_libc = ctypes.PyDLL(None, use_errno=True)
_fork = _libc.fork
_unshare = _libc.unshare
_mount = _libc.mount
_umount2 = _libc.umount2
_prctl = _libc.prctl
_syscall = _libc.syscall
_close_range = _libc.close_range
_mount.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p]
_syscall.argtypes = [ctypes.c_long] * 5
_syscall.restype = ctypes.c_long
_prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4


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


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    """Mount a file system."""
    done = _mount(source.encode(), target.encode(), kind and kind.encode(), flags, options.encode() or None)
    _check(done, f"mount {target}")


def umount(target: str) -> None:
    """Take a mount away from the tree; it is gone when its last user is."""
    _check(_umount2(target.encode(), MNT_DETACH), f"umount {target}")


def pivot_root(root: str) -> None:
    """Make `root` the only file system this process sees."""
    os.chdir(root)
    dot = ctypes.c_char_p(b".")
    address = ctypes.cast(dot, ctypes.c_void_p).value or 0
    _check(_syscall(PIVOT_ROOT, address, address, 0, 0), "pivot_root")
    umount(".")
    os.chdir("/")


def prctl(option: int, argument: int) -> None:
    """Set one attribute of this process."""
    _check(_prctl(option, argument, 0, 0, 0), "prctl")


def close_from(first: int) -> None:
    """Close every descriptor from `first` on."""
    _check(_close_range(first, 0x7FFFFFFF, 0), "close_range")


class Program(ctypes.Structure):
    """A seccomp filter as the kernel takes it."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))

    def __init__(self, code: bytes) -> None:
        self._buffer = ctypes.create_string_buffer(code, len(code))
        super().__init__(len(code) // 8, ctypes.addressof(self._buffer))

    def install(self) -> None:
        """Filter this process's system calls from here on. Needs no-new-privileges or CAP_SYS_ADMIN."""
        _check(_prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(self), 0, 0), "seccomp")


def own_process_only(calls: tuple[int, int], pid: int) -> Program:
    """A filter that lets this process send signals to itself alone; `calls`: the numbers of `kill` and `tgkill`."""
    load, jump_equal, answer = 0x20, 0x15, 0x06
    number, first_argument = 0, 16
    allow, refuse = 0x7FFF0000, 0x00050000 | errno.EPERM
    code = (
        (load, 0, 0, number),
        (jump_equal, 2, 0, calls[0]),
        (jump_equal, 1, 0, calls[1]),
        (answer, 0, 0, allow),
        (load, 0, 0, first_argument),
        (jump_equal, 0, 1, pid),
        (answer, 0, 0, allow),
        (answer, 0, 0, refuse),
    )
    return Program(b"".join(struct.pack("=HBBI", *instruction) for instruction in code))


def landlock_abi() -> int:
    """The version of landlock that the kernel speaks; 0 if none."""
    version: int = _syscall(LANDLOCK_CREATE_RULESET, 0, 0, 1, 0)
    return max(0, version)


_FILE_RIGHTS = {1: 0x1FFF, 2: 0x3FFF, 3: 0x7FFF, 4: 0x7FFF, 5: 0xFFFF}
LANDLOCK_READ = 0b1101
"""Execute, read a file, list a folder."""
LANDLOCK_READ_FILE = 0b100
LANDLOCK_WRITE_FILE = 0b110
_FILE_ONLY = 0b111 | 1 << 14


def landlock(abi: int, rules: list[tuple[str, int]]) -> None:
    """Allow this process only these paths (each with what is below it) with these rights; 0 means all rights.

    From ABI 4 on also no TCP, from ABI 6 on no signals to, and no abstract sockets of, anybody outside.
    """
    handled = _FILE_RIGHTS[min(abi, 5)]
    attributes = struct.pack("=QQQ", handled, 3 if abi >= 4 else 0, 3 if abi >= 6 else 0)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    buffer = ctypes.create_string_buffer(attributes, 24)
    ruleset = _check(_syscall(LANDLOCK_CREATE_RULESET, ctypes.addressof(buffer), size, 0, 0), "landlock")
    for path, rights in rules:
        descriptor = os.open(path, os.O_PATH)
        rule = ctypes.create_string_buffer(struct.pack("=Qi", (rights or handled) & handled, descriptor), 12)
        _check(_syscall(LANDLOCK_ADD_RULE, ruleset, 1, ctypes.addressof(rule), 0), f"landlock {path}")
        os.close(descriptor)
    _check(_syscall(LANDLOCK_RESTRICT_SELF, ruleset, 0, 0, 0), "landlock")
    os.close(ruleset)


def file_rights(rights: int) -> int:
    """Those of `rights` that a rule about a single file may hold."""
    return rights & _FILE_ONLY


if sys.platform != "linux":
    raise ImportError("the sandbox runs on Linux only")

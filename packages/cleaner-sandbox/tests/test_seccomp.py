"""The filter is entered in two parts; together they allow what the whole list allows, and nothing else."""

from __future__ import annotations

import errno
import mmap
import os
import resource
import socket
import struct
import subprocess
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path

import pyseccomp
import pytest

from cleaner_sandbox import BARE, Layer, NodeConfig, Tier
from cleaner_sandbox.inside import kernel
from cleaner_sandbox.isolation import seccomp
from tests.conftest import Driver, needs

ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000
ARGUMENTS = (0, 1, 2, 3, 4, 15, 16, 17, 22, 23, 38, 0x5401, 0x541B, 0x00010000, 0x10000000, 0x7E020000, 0x3D0F00)
"""Of `prctl`, `ioctl`, `socket`, `clone`, ...: what rules ask for, and their neighbours."""
SECONDS = (0, 8, 9, 10, 0x5401, 0x5413, 0x5412, os.O_TRUNC, os.O_TRUNC | os.O_RDWR)


@cache
def instructions(program: bytes) -> list[tuple[int, int, int, int]]:
    return list(struct.iter_unpack("=HBBI", program))


def answer(program: bytes, number: int, arch: int, first: int, second: int, third: int = 0, fourth: int = 0) -> int:
    """What the kernel would answer: a classic BPF machine, as far as libseccomp uses it."""
    data = struct.pack("=iIQ6Q", number, arch, 0, first, second, third, fourth, 0, 0)
    code = instructions(program)
    accumulator, at = 0, 0
    while True:
        operation, if_true, if_false, value = code[at]
        at += 1
        match operation:
            case 0x20:
                (accumulator,) = struct.unpack_from("=I", data, value)
            case 0x05:
                at += value
            case 0x15:
                at += if_true if accumulator == value else if_false
            case 0x25:
                at += if_true if accumulator > value else if_false
            case 0x35:
                at += if_true if accumulator >= value else if_false
            case 0x45:
                at += if_true if accumulator & value else if_false
            case 0x54:
                accumulator &= value
            case 0x06:
                return int(value)
            case _:
                raise AssertionError(f"unknown instruction {operation:#x}")


@pytest.mark.parametrize(("processes", "landlock_abi"), [(True, 7), (False, 7), (False, 1)])
def test_both_parts_together_are_the_whole_list(
    processes: bool, landlock_abi: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For every system call, with all arguments that a rule asks for."""
    monkeypatch.setattr(kernel, "landlock_abi", lambda: landlock_abi)
    whole = seccomp.build(processes)
    parts = seccomp.build(processes, supervisor=True), seccomp.take_back(processes)
    arch = ARCH["x86_64"]
    allowed = 0
    for number in range(470):
        for first, second in product(ARGUMENTS, SECONDS):
            want = answer(whole, number, arch, first, second)
            # The kernel asks all filters and takes the strictest answer; among errors, that of the last one entered.
            both = [answer(part, number, arch, first, second) for part in reversed(parts)]
            assert (want == ALLOW) == (both == [ALLOW, ALLOW]), number
            if want != ALLOW:
                assert want == next(each for each in both if each != ALLOW)
            allowed += want == ALLOW
    assert allowed


def test_a_sessions_limit_on_processes_has_no_second_name() -> None:
    """The kernel takes a limit's number from half of the argument; the other half may hold anything."""
    program, arch = seccomp.take_back(True, session=True), pyseccomp.system_arch()
    for number in (resource.RLIMIT_NPROC, resource.RLIMIT_NPROC | 1 << 32, resource.RLIMIT_NPROC | 0xFFFFFFFF << 32):
        setrlimit = pyseccomp.resolve_syscall(arch, "setrlimit")
        assert answer(program, setrlimit, ARCH["x86_64"], number, 1) == ERRNO | errno.EPERM
        prlimit = pyseccomp.resolve_syscall(arch, "prlimit64")
        assert answer(program, prlimit, ARCH["x86_64"], 0, number, 1) == ERRNO | errno.EPERM
        assert answer(program, prlimit, ARCH["x86_64"], 0, number, 0) == ALLOW


@pytest.mark.parametrize("name", ["SO_SNDBUF", "SO_RCVBUF", "SO_SNDBUFFORCE", "SO_RCVBUFFORCE", "SO_ATTACH_FILTER"])
def test_no_run_sets_the_size_of_a_sockets_buffer(name: str) -> None:
    """Nor by another name: the kernel takes an option's number from half of the argument."""
    numbers = {"SO_SNDBUF": 7, "SO_RCVBUF": 8, "SO_ATTACH_FILTER": 26, "SO_SNDBUFFORCE": 32, "SO_RCVBUFFORCE": 33}
    program, arch = seccomp.build(True), pyseccomp.system_arch()
    setsockopt = pyseccomp.resolve_syscall(arch, "setsockopt")
    for level in (socket.SOL_SOCKET, socket.SOL_SOCKET | 1 << 32):
        for option in (numbers[name], numbers[name] | 1 << 32):
            assert answer(program, setsockopt, ARCH["x86_64"], 3, level, option) == ERRNO | errno.ENOSYS
    assert answer(program, setsockopt, ARCH["x86_64"], 3, socket.SOL_SOCKET, socket.SO_REUSEADDR) == ALLOW


@pytest.mark.parametrize("processes", [True, False])
def test_shared_memory_without_a_file_is_refused(processes: bool) -> None:
    """By any of its names; what is private, or a file's, is not."""
    mmap_call = pyseccomp.resolve_syscall(pyseccomp.system_arch(), "mmap")
    shared, private, shared_validate, anonymous, no_reserve = 0x01, 0x02, 0x03, 0x20, 0x4000
    for program in (seccomp.build(processes), seccomp.build(processes, supervisor=True)):
        for kind, more in product((shared, shared_validate), (0, no_reserve, 1 << 32)):
            refused = answer(program, mmap_call, ARCH["x86_64"], 0, 4096, 3, kind | anonymous | more)
            assert refused == ERRNO | errno.ENOMEM
        for flags in (shared, shared_validate, private, private | anonymous, private | anonymous | no_reserve):
            assert answer(program, mmap_call, ARCH["x86_64"], 0, 4096, 3, flags) == ALLOW


@pytest.mark.parametrize("processes", [True, False])
def test_finding_no_run_takes_huge_pages_of_the_pool_or_pushes_its_memory_out(processes: bool) -> None:
    arch = pyseccomp.system_arch()
    mmap_call, madvise = (pyseccomp.resolve_syscall(arch, name) for name in ("mmap", "madvise"))
    private, shared, anonymous, huge = 0x02, 0x01, 0x20, 0x40000
    cold, page_out, collapse = 20, 21, 25
    for program in (seccomp.build(processes), seccomp.build(processes, supervisor=True)):
        for flags in (private | anonymous, shared | anonymous, private | anonymous | 21 << 26, shared, 1 << 32):
            refused = answer(program, mmap_call, ARCH["x86_64"], 0, 4096, 3, flags | huge)
            assert refused == ERRNO | errno.ENOMEM
        for advice in (cold, page_out, page_out | 1 << 32, collapse):
            assert answer(program, madvise, ARCH["x86_64"], 0, 4096, advice) == ERRNO | errno.EINVAL
        for usual in (mmap.MADV_DONTNEED, mmap.MADV_FREE, mmap.MADV_HUGEPAGE, mmap.MADV_DODUMP, 102):
            assert answer(program, madvise, ARCH["x86_64"], 0, 4096, usual) == ALLOW


def test_finding_no_process_shares_its_memory_or_files_with_another() -> None:
    """Who looks at the one would not see what the other does; only a parent that waits may lend its memory."""
    clone = pyseccomp.resolve_syscall(pyseccomp.system_arch(), "clone")
    program, arch, sigchld = seccomp.build(True), ARCH["x86_64"], 17
    memory, folder, files, handlers, vfork, thread = 0x100, 0x200, 0x400, 0x800, 0x4000, 0x10000
    for refused in (memory, folder, files, memory | files, memory | vfork | files, memory | folder | handlers):
        assert answer(program, clone, arch, refused | sigchld, 0) == ERRNO | errno.ENOSYS
    for usual in (0, memory | vfork, memory | folder | files | handlers | thread):
        assert answer(program, clone, arch, usual | sigchld, 0) == ALLOW


def test_a_foreign_architecture_is_killed() -> None:
    """32-bit calls have other numbers, so no list of numbers holds for them."""
    for program in (seccomp.build(True), seccomp.build(True, supervisor=True), seccomp.take_back(True)):
        assert answer(program, 1, 0x40000003, 0, 0) == KILL


@pytest.fixture(scope="module")
def no_landlock() -> Iterator[Driver]:
    """A node of tier 1 whose runs have nothing around them but the filter, built as for landlock's first version."""
    needs(Tier.T1)
    config = NodeConfig(
        slots=1, environments=(BARE,), tier=Tier.T1, min_tier=Tier.NONE, without=frozenset({Layer.LANDLOCK})
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "landlock_abi", lambda: 1)
        driver = Driver(config)
    yield driver
    driver.close()


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    """A process of the node's user that is none of a run's business."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


OWNED_PIPE = """
import fcntl, os, signal, struct
F_SETSIG, F_SETOWN_EX, F_OWNER_PID = 10, 15, 1
read, write = os.pipe()
def tried(*command):
    try: fcntl.fcntl(read, *command)
    except OSError as error: print(error.errno)
"""


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("import ctypes\nprint(ctypes.CDLL(None).sigqueue({victim}, 9, 0))", "-1\n"),
        ("import os\ntry: os.kill({victim}, 9)\nexcept PermissionError: print(-1)", "-1\n"),
        (OWNED_PIPE + "tried(F_SETSIG, signal.SIGKILL)", "38\n"),
        (OWNED_PIPE + "tried(fcntl.F_SETOWN, {victim})", "38\n"),
        (OWNED_PIPE + "tried(F_SETOWN_EX, struct.pack('ii', F_OWNER_PID, {victim}))", "38\n"),
    ],
    ids=["sigqueue", "kill", "signal of a descriptor", "owner of a descriptor", "owner with its kind"],
)
def test_the_filter_alone_keeps_signals_from_other_processes(
    no_landlock: Driver, victim: subprocess.Popen[bytes], code: str, output: str
) -> None:
    assert no_landlock.run(code.format(victim=victim.pid)).output == output
    assert victim.poll() is None


def test_a_run_may_signal_itself_in_every_way(no_landlock: Driver) -> None:
    code = """
import ctypes, os, signal, threading
signal.signal(signal.SIGUSR1, lambda *_: print("heard"))
os.kill(os.getpid(), signal.SIGUSR1)
signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
ctypes.CDLL(None).sigqueue(os.getpid(), signal.SIGUSR1, 0)
"""
    assert no_landlock.run(code).output == "heard\n" * 3


@pytest.mark.parametrize("code", ["os.truncate({path!r}, 0)", "os.open({path!r}, os.O_RDONLY | os.O_TRUNC)"])
def test_the_filter_keeps_files_whole_where_landlock_does_not(no_landlock: Driver, tmp_path: Path, code: str) -> None:
    kept = tmp_path / "kept"
    kept.write_text("whole")
    result = no_landlock.run("import os\n" + code.format(path=str(kept)))
    assert result.exception is not None
    assert "Function not implemented" in result.exception.message
    assert kept.read_text() == "whole"


def test_files_are_written_anew_where_the_filter_keeps_them_whole(no_landlock: Driver) -> None:
    code = "for mode in ('w', 'w+'):\n    open('f', mode).write(mode)\n    print(open('f').read())"
    assert no_landlock.run(code).output == "w\nw+\n"


def test_a_pair_of_sockets_reaches_only_itself_at_tier_1(t1: Driver, tmp_path: Path) -> None:
    pair = "import socket\none, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "listener"))
        listener.setblocking(False)
        result = t1.run(pair + f"one.sendto(b'out', {listener.getsockname()!r})")
        assert result.exception is not None
        with pytest.raises(BlockingIOError):
            listener.recv(16)
    assert t1.run(pair + "one.send(b'in')\nprint(other.recv(16))").output == "b'in'\n"

"""What an undone cell shares with the state it ran from: each is put back, or keeps the state from being forked."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleaner_sandbox import Cell, RunStatus, SessionLostError
from cleaner_sandbox.processes import descendants
from tests.conftest import Driver
from tests.test_sessions import Cells

pytestmark = pytest.mark.timeout(110)

MAP = """
import ctypes
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
with open("f", "w+b") as f:
    f.write(b"clean" + bytes(4091))
    f.flush()
    at = libc.mmap(None, ctypes.c_size_t(4096), 1, 1, f.fileno(), ctypes.c_long(0))
"""
WRITE = """
libc.mprotect(ctypes.c_void_p(at), ctypes.c_size_t(4096), 3)
ctypes.memmove(at, b"DIRTY", 5)
1 / 0
"""


def test_finding_a_shared_mapping_that_is_made_writable_later_is_not_forked(t2: Driver) -> None:
    cells = Cells(t2)
    assert cells.run(MAP).not_checkpointable == ("shared mapping",)
    cells.fail(WRITE)
    assert cells.show("ctypes.string_at(at, 5)") == "b'clean'\n"


def test_a_shared_mapping_of_a_file_that_nobody_may_write_to_is_no_obstacle(t2: Driver) -> None:
    share = "import mmap\nf = open('/etc/hosts', 'rb')\nm = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)"
    assert Cells(t2).run(share).not_checkpointable == ()


HANDLE = """
import os, signal, time
seen = []
for number in (signal.SIGUSR1, signal.SIGCHLD, signal.SIGINT, signal.SIGRTMIN):
    signal.signal(number, lambda number, _: seen.append(number))
"""


def test_finding_a_state_that_waits_runs_no_handler(t2: Driver) -> None:
    cells = Cells(t2)
    cells.show(HANDLE)
    for _ in range(2):
        cells.fail("for number in (10, 2, 34):\n    os.kill(os.getppid(), number)\n1 / 0")
        assert cells.run("print(seen)", commit="never").result.output == "[]\n"
    cells.show("1;")
    cells.rollback(1)
    assert cells.show("print(seen)") == "[]\n"


def test_a_cell_gets_its_own_signals_and_keeps_what_it_blocks(t2: Driver) -> None:
    cells = Cells(t2)
    cells.show(HANDLE)
    assert cells.show("os.kill(os.getpid(), signal.SIGUSR1)\nprint(len(seen))") == "1\n"
    cells.show("signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1]);")
    assert cells.show("print(signal.pthread_sigmask(signal.SIG_BLOCK, []))") == "{<Signals.SIGUSR1: 10>}\n"
    cells.show("import threading\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()")
    in_place = "signal.pthread_sigmask(signal.SIG_UNBLOCK, [10])\nos.kill(os.getpid(), 10)\nprint(len(seen))"
    assert cells.show(in_place) == "2\n"


@pytest.mark.parametrize("path", ["/etc/hosts", "own"])
def test_finding_the_flags_of_an_open_file_are_put_back(t2: Driver, path: str) -> None:
    cells = Cells(t2)
    cells.show(f"import fcntl, os\nopen('own', 'w').close()\nf = os.open('{path}', os.O_RDONLY)")
    cells.show("1;")  # in a layer that nobody writes to
    flags = cells.show("print(fcntl.fcntl(f, fcntl.F_GETFL))")
    cells.fail("fcntl.fcntl(f, fcntl.F_SETFL, os.O_NONBLOCK | os.O_APPEND)\n1 / 0")
    assert cells.show("print(fcntl.fcntl(f, fcntl.F_GETFL))") == flags


TRY_LOCK = "with open('own') as g:\n    fcntl.flock(g, fcntl.LOCK_EX | fcntl.LOCK_NB)\nprint('free')"


def test_finding_a_lock_of_a_cell_that_is_undone_is_released(t2: Driver) -> None:
    cells = Cells(t2)
    cells.show("import fcntl\nopen('own', 'w').close()\nf = open('own')")
    cells.show("1;")
    cells.fail("fcntl.flock(f, fcntl.LOCK_EX)\n1 / 0")
    assert cells.show(TRY_LOCK) == "free\n"


@pytest.mark.parametrize("take", ["fcntl.flock(f, fcntl.LOCK_EX)", "fcntl.lockf(f, fcntl.LOCK_EX)"])
def test_finding_a_state_that_holds_a_lock_is_not_forked(t2: Driver, take: str) -> None:
    cells = Cells(t2)
    assert cells.run(f"import fcntl\nf = open('own', 'w')\n{take}").not_checkpointable == ("lock",)
    assert cells.run("fcntl.flock(f, fcntl.LOCK_UN)\nfcntl.lockf(f, fcntl.LOCK_UN)").not_checkpointable == ()


def test_a_folder_that_is_open_only_as_a_path_is_kept(t2: Driver) -> None:
    cells = Cells(t2)
    cells.show("import os\nborn = os.urandom(8)\nprint(born)")
    cells.show("open('own', 'w').close()\nf = os.open('.', os.O_PATH)")
    cells.fail("1 / 0")
    assert cells.show("print(os.stat('own', dir_fd=f).st_size)") == "0\n"


def test_no_cell_puts_a_link_in_place_of_its_folder(t2: Driver) -> None:
    cells = Cells(t2)
    swap = "import os\nos.rename('/box/run/work', '/box/run/was')\nos.symlink('/', '/box/run/work')"
    outcome = cells.run(swap, fetch=("etc/hosts",))
    assert outcome.result.exception is not None
    assert outcome.result.exception.type == "PermissionError"
    assert outcome.run.files == {}


def test_files_that_come_with_a_cell_can_be_imported_by_it(t2: Driver) -> None:
    cells = Cells(t2)
    cells.fail("import helper")
    for value in (1, 2):
        put = Cell(
            f"import helper{value}\nprint(helper{value}.x)", files={f"helper{value}.py": f"x = {value}".encode()}
        )
        assert t2.wait(cells.session.run(put)).result.output == f"{value}\n"


FAR = """
here = os.open(".", os.O_RDONLY)
for _ in range(20):
    os.mkdir("d" * 250)
    os.chdir("d" * 250)
far = open("far", "w")
os.fchdir(here)
"""
SHARE = """
import mmap, os
with open({name!r}, "w+b") as file:
    file.write(b"clean" + bytes(4091))
    file.flush()
    area = mmap.mmap(file.fileno(), 4096)
"""
SPOIL, SHOW = "area[:5] = b'DIRTY'\n1 / 0", "print(bytes(area[:5]))"
HIDDEN = {
    "a link with the name that the kernel shows": (
        SHARE.format(name="a\nb") + r"os.symlink('/usr/bin/env', r'a\012b')",
        SPOIL,
        SHOW,
        "b'clean'\n",
    ),
    "a working folder with a long path": (
        SHARE.format(name="s") + FAR + "os.fchdir(os.open('d' * 250, os.O_RDONLY))\n" + "os.chdir('d' * 250)\n" * 18,
        SPOIL,
        SHOW,
        "b'clean'\n",
    ),
    "an offset beside a file with a long path": (
        "import os\nf = open('q', 'w+b', buffering=0)\nf.write(b'0123456789')\nf.seek(0)" + FAR,
        "f.seek(7)\n1 / 0",
        "print(f.tell())",
        "0\n",
    ),
    "a pipe beside a file with a long path": (
        "import os\nread, write = os.pipe()\nos.set_blocking(read, False)" + FAR,
        "os.write(write, b'DIRTY')\n1 / 0",
        "try:\n    os.read(read, 5)\nexcept BlockingIOError:\n    print('empty')",
        "empty\n",
    ),
    "a pipe in place of input and report": (
        """
import os
real, (read, write) = os.dup2, os.pipe()
real(read, 0)
real(write, 3)
os.close(read)
os.close(write)
def dup2(given, number, *others, **options):
    if number in (0, 3):
        if os.fstat(given).st_rdev:
            return number  # the harness lets go of the cell's files
        real(number, 200 + number)
    return real(given, number, *others, **options)
os.dup2 = dup2
""",
        "os.write(203, b'DIRTY')\n1 / 0",
        "os.set_blocking(200, False)\ntry:\n    print(os.read(200, 5))\nexcept BlockingIOError:\n    print('empty')",
        "empty\n",
    ),
    "a file by an interpreter that doesn't leave the checkpoint's folder": (
        "import os\nopen('a', 'w').close()\nos.chdir = lambda path: None",
        "open('trace', 'w').close()\n1 / 0",
        "import os\nprint(os.path.exists('trace'))",
        "False\n",
    ),
    "an open file that is the checkpoint's": (
        """
import os
file = open("a", "w+")
real = os.dup2
os.dup2 = lambda given, number, **options: number if number >= 5 else real(given, number, **options)
""",
        "file.write('DIRTY')\nfile.flush()\n1 / 0",
        "import os\nprint(open('a').read() if os.path.exists('a') else '')",
        "\n",
    ),
    "a handler in an interpreter that blocks no signals": (
        """
import os, signal, sys
seen = []
signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
frame = sys._getframe()
while "run_cell" not in frame.f_globals:
    frame = frame.f_back
real = frame.f_globals["pthread_sigmask"]
frame.f_globals["pthread_sigmask"] = lambda how, signals: real(how, set(signals) - {signal.SIGUSR1})
""",
        "os.kill(os.getppid(), signal.SIGUSR1)\n1 / 0",
        "print(seen)",
        "[]\n",
    ),
}


@pytest.mark.parametrize(("before", "undone", "after", "shown"), HIDDEN.values(), ids=HIDDEN)
def test_finding_what_is_hard_to_see_is_put_back_or_not_forked(
    t2: Driver, before: str, undone: str, after: str, shown: str
) -> None:
    cells = Cells(t2)
    assert cells.run(before).committed
    assert cells.run(undone).result.status not in (RunStatus.OK, RunStatus.FAULT)
    try:
        outcome = cells.run(after)
    except SessionLostError:  # the state could not be made again, and nobody was told otherwise
        return
    assert outcome.result.output == shown


def test_finding_a_name_with_a_carriage_return_ends_no_session(t2: Driver) -> None:
    cells = Cells(t2)
    cells.show(
        "import mmap\nwith open('a\\rb-s ', 'w+b') as f:\n    f.write(bytes(4096))\n    f.flush()\n"
        "    m = mmap.mmap(f.fileno(), 4096, flags=mmap.MAP_PRIVATE)"
    )
    assert cells.show("print(1)") == "1\n"


def test_finding_a_cell_that_kills_a_checkpoint_has_failed(t2: Driver) -> None:
    cells = Cells(t2)
    cells.show("import os, time\nx = 1\nprint(time.time_ns())")
    outcome = cells.run("os.kill(os.getppid(), 9)\ny = 1")
    assert outcome.result.status not in (RunStatus.OK, RunStatus.FAULT)
    assert not outcome.committed
    assert outcome.unrepeatable


def test_finding_a_timer_is_an_obstacle(t2: Driver) -> None:
    make = """
import ctypes
libc, timer = ctypes.CDLL(None), ctypes.c_void_p()
libc.timer_create(0, None, ctypes.byref(timer))
"""
    assert Cells(t2).run(make).not_checkpointable == ("timer",)


def test_finding_processes_of_an_undone_cell_leave_no_number(t2: Driver) -> None:
    cells = Cells(t2)
    cells.show("import os")
    count = "for _ in range({}):\n    if os.fork() == 0:\n        os._exit(0)\n    os.wait()\n1 / 0"
    seen = set()
    for number in (1, 30):
        cells.fail(count.format(number))
        seen.add(cells.run("print(os.getpid())", commit="never").result.output)
    assert len(seen) == 1


def test_finding_signals_of_the_c_library_reach_no_checkpoint(t2: Driver) -> None:
    cells = Cells(t2)
    cells.show(
        """
import ctypes, os, struct
libc = ctypes.CDLL(None)
known = ctypes.create_string_buffer(32)
libc.syscall(13, 2, None, known, 8)
_, flags, restorer, _ = struct.unpack("QQQQ", known.raw)
heard = []
handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda number: heard.append(number))
address = ctypes.cast(handler, ctypes.c_void_p).value
libc.syscall(13, 33, ctypes.create_string_buffer(struct.pack("QQQQ", address, flags, restorer, 0), 32), None, 8)
"""
    )
    cells.fail("os.kill(os.getppid(), 33)\n1 / 0")
    assert cells.show("print(heard)") == "[]\n"


AWAKE = """
import os, threading, time
close, me, told = os.close, os.getpid(), []
def wake(descriptor):
    close(descriptor)
    told.append(descriptor)
    if os.getpid() == me and len(told) == 2:  # the first time is at the end of its own cell
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
os.close = wake
"""


def test_finding_a_checkpoint_that_does_not_sleep_is_broken(t2: Driver) -> None:
    cells = Cells(t2)
    assert cells.run(AWAKE).committed
    outcome = cells.run("x = 1")
    assert outcome.result.status not in (RunStatus.OK, RunStatus.FAULT)
    assert not outcome.committed


def test_finding_nothing_of_a_cell_runs_before_its_checkpoint_sleeps(t2: Driver) -> None:
    cells = Cells(t2)
    late = """
import os, time
close, me, told, seen = os.close, os.getpid(), [], []
def wait(descriptor):
    close(descriptor)
    told.append(descriptor)
    if os.getpid() == me and len(told) == 2:
        time.sleep(0.3)
        seen.append(os.path.exists("/tmp/begun"))
os.close = wait
"""
    assert cells.run(late).committed
    cells.fail("os.close = close\nopen('/tmp/begun', 'w').close()\n1 / 0")
    assert cells.show("print(seen)") == "[False]\n"


def test_finding_a_checkpoint_is_stopped_while_cells_run(t2: Driver) -> None:
    cells = Cells(t2)
    cells.show("import os, time")
    cells.show("time.sleep(0.2)")
    states = {
        Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        for pid in descendants([cells.session.pid])
        if pid != cells.session.pid
    }
    assert states == {"S", "T"}

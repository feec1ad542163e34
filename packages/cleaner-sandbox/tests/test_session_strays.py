"""What a cell leaves behind, processes and outputs: it ends with the cell, or stays within the session's limits."""

from __future__ import annotations

import asyncio
import platform
import time
from pathlib import Path

import pytest

from cleaner_sandbox import Commit, Limits
from cleaner_sandbox.processes import descendants
from cleaner_sandbox.protocol.results import RunStatus
from tests.conftest import Driver
from tests.test_sessions import Cells

pytestmark = pytest.mark.timeout(110)

FORK_FOREVER = """
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
"""


def test_a_cell_that_forks_forever_is_stopped_and_undone(t2: Driver) -> None:
    cells = Cells(t2, limits=Limits(cpu_seconds=1, wall_seconds=3, processes=64))
    cells.show("x = 1")
    assert cells.fail(FORK_FOREVER).result.status is RunStatus.TIMEOUT
    assert cells.show("x += 1; print(x)") == "2\n"
    assert cells.rollback(0) == 0


def living(cells: Cells) -> int:
    """Processes of a session, its supervisor not counted."""
    return len(descendants([cells.session.pid])) - 1


def wait_until_killed(cells: Cells, left: int = 1) -> None:
    """Wait until no more processes are left than the first state, or so many."""
    deadline = time.monotonic() + 60
    while living(cells) > left:
        assert time.monotonic() < deadline
        time.sleep(0.1)


WORKS_LATER = """
import mmap, os, time
def spin():
    while True:
        pass
def fill():
    area = mmap.mmap(-1, 40 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for at in range(0, len(area), 4096):
        area[at] = 1
    time.sleep(600)
for _ in range(4):
    if os.fork() == 0:
        time.sleep(0.5)
        {work}()
"""


@pytest.mark.parametrize("work", ["spin", "fill"])
def test_what_a_cell_left_behind_has_limits_between_cells_too(t2: Driver, work: str) -> None:
    cells = Cells(t2, limits=Limits(cpu_seconds=2, memory_mb=64))
    assert cells.run(WORKS_LATER.format(work=work)).not_checkpointable == ("process",)
    assert living(cells) == 6
    wait_until_killed(cells)
    assert cells.run("print(1)").result.status is RunStatus.CRASHED
    assert cells.show("print(2)") == "2\n"


WORKS_WHEN_TOLD = """
import marshal, mmap, os, socket, time
def fill(*_):
    for _ in range(4):
        if os.fork() == 0:
            break
    area = mmap.mmap(-1, 40 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for at in range(0, len(area), 4096):
        area[at] = 1
    time.sleep(600)
def fill_before_reading(channel, *_):
    channel.recvmsg(4)
    fill()
{harness} = {work}
"""


@pytest.mark.parametrize(
    ("harness", "work", "cell"),
    [
        pytest.param("marshal.loads", "fill", "print(1)", id="told"),
        pytest.param("socket.recv_fds", "fill_before_reading", f"print(1)  # {'x' * (4 << 20)}", id="half told"),
    ],
)
def test_a_state_that_does_not_answer_has_limits_meanwhile(t2: Driver, harness: str, work: str, cell: str) -> None:
    cells = Cells(t2, limits=Limits(cpu_seconds=2, memory_mb=64))
    assert cells.run(WORKS_WHEN_TOLD.format(harness=harness, work=work)).committed
    assert cells.run(cell).result.status is RunStatus.CRASHED
    assert cells.show("print(2)") == "2\n"


WORKS_BEFORE_IT_STARTS = """
import os, threading, time
def work(descriptor, data, write=os.write):
    if data == b"S":
        began = time.process_time()
        while time.process_time() < began + {seconds}:
            pass
    return write(descriptor, data)
os.write = work
"""


@pytest.mark.parametrize("thread", ["", "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()"])
def test_finding_what_is_done_before_a_cell_begins_counts_for_it(t2: Driver, thread: str) -> None:
    cells = Cells(t2, limits=Limits(cpu_seconds=1))
    assert cells.run(WORKS_BEFORE_IT_STARTS.format(seconds=0.4) + thread).committed
    assert cells.run("1").run.cpu_seconds > 0.3
    assert cells.run(WORKS_BEFORE_IT_STARTS.format(seconds=600)).committed
    assert cells.run("1").result.explanation == "An earlier cell broke the session's interpreter, and is undone."


RESERVE = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def reserve(descriptor, size):
    return libc.fallocate(descriptor, 1, ctypes.c_long(0), ctypes.c_long(size)) and ctypes.get_errno()
"""


def test_a_cell_may_not_reserve_memory_in_its_outputs(t2: Driver) -> None:
    cells = Cells(t2)
    cells.show(RESERVE)
    for output in (1, 2, 3):
        assert cells.fail(f"reserve({output}, 40 << 20)").result.status is RunStatus.OUTPUT_LIMIT


def test_finding_outputs_that_a_cell_keeps_hold_nothing_and_are_written_no_more(t2: Driver) -> None:
    cells = Cells(t2, limits=Limits(output_bytes=8 << 20))
    cells.show(RESERVE + "kept = []")
    for _ in range(4):
        cells.show("kept.append(os.dup(1)); reserve(1, 6 << 20); os.ftruncate(1, 6 << 20)")
    assert cells.show("print([os.fstat(each).st_blocks for each in kept])") == "[0, 0, 0, 0]\n"
    assert cells.show("print([reserve(each, 20 << 20) for each in kept])") == "[1, 1, 1, 1]\n"  # EPERM
    cells.fail("os.pwrite(kept[0], b'x', 0)")


MAP_OUTPUTS = """
import mmap, os
refused = []
for output in (1, 2, 3):
    os.ftruncate(output, 4096)
    try:
        mmap.mmap(output, 4096)
    except OSError as error:
        refused.append(type(error).__name__)
    os.ftruncate(output, 0)
refused
"""


def test_finding_no_output_of_a_cell_can_be_mapped(t2: Driver) -> None:
    """Pages of a mapping can be given back and stay in the file, where nobody counts them."""
    assert Cells(t2).show(MAP_OUTPUTS) == "['PermissionError', 'PermissionError', 'PermissionError']\n"


def test_a_cell_may_not_keep_its_outputs_from_being_sealed(t2: Driver) -> None:
    seal = "import fcntl\nfcntl.fcntl(1, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL)"
    exception = Cells(t2).fail(seal).result.exception
    assert exception is not None
    assert exception.type == "PermissionError"


def test_a_thread_may_print_between_cells(t2: Driver) -> None:
    cells = Cells(t2)
    cells.show(
        "import threading\nstart, done = threading.Event(), []\n"
        "def late():\n    start.wait()\n    print('lost', flush=True)\n    done.append(1)\n"
        "thread = threading.Thread(target=late)\nthread.start()\nthreading.Timer(0.3, start.set).start()"
    )
    time.sleep(1)
    assert cells.show("thread.join(); print(done)") == "[1]\n"


def test_a_cell_may_take_away_its_outputs(t2: Driver) -> None:
    cells = Cells(t2)
    assert cells.show("import sys\nprint(1)\nkept, sys.stdout = sys.stdout, None") == "1\n"
    assert cells.show("sys.stdout = kept\nprint(2)") == "2\n"


GHOST = """
import _thread, ctypes, os, socket, time
def serve():
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("\\0ghost")
    listener.listen()
    os.write(write, b"1")
    time.sleep(600)
read, write = os.pipe()
if os.fork() == 0:
    _thread.start_new_thread(serve, ())
    ctypes.CDLL(None).syscall(60, 0)
os.read(read, 1)
"""
CALL_GHOST = "import socket\nsocket.socket(socket.AF_UNIX).connect('\\0ghost')"


def test_finding_a_process_whose_first_thread_ended_is_gone_with_its_cell(t2: Driver) -> None:
    cells = Cells(t2)
    cells.show("x = 1")
    cells.fail(GHOST + "1 / 0")
    cells.fail(CALL_GHOST)
    assert living(cells) == 2


def test_finding_a_process_whose_first_thread_ended_is_an_obstacle(t2: Driver) -> None:
    cells = Cells(t2)
    assert "process" in cells.run(GHOST + "os.close(read); os.close(write); del read, write").not_checkpointable
    cells.show(CALL_GHOST)


def test_finding_a_cell_that_wakes_a_checkpoint_has_failed_and_later_ones_go_on(t2: Driver) -> None:
    cells = Cells(t2)
    cells.show("import os, signal, time\ncheckpoint = os.getpid()")
    cells.show("x = 1")
    cells.fail("os.kill(checkpoint, signal.SIGCONT)\ntime.sleep(0.2)")
    assert cells.show("print(x)") == "1\n"


def test_finding_a_checkpoint_that_was_killed_fails_no_later_cell(t2: Driver) -> None:
    cells = Cells(t2)
    cells.show("import os, signal\ncheckpoint = os.getpid()")
    cells.show("x = 1")
    cells.fail("os.kill(checkpoint, signal.SIGKILL)\n1 / 0")
    assert [cells.show("print(x)") for _ in range(3)] == ["1\n"] * 3


def test_finding_memory_that_is_taken_between_cells_is_counted(t2: Driver) -> None:
    cells = Cells(t2, limits=Limits(memory_mb=256))
    late = "time.sleep(0.5)\n    kept.append(b'x' * (150 << 20))\n    time.sleep(600)"
    cells.show(f"import threading, time\nkept = []\ndef late():\n    {late}")
    before = cells.session.held_bytes
    cells.show("threading.Thread(target=late, daemon=True).start()")
    deadline = time.monotonic() + 60
    while cells.session.held_bytes < before + (80 << 20):  # told in steps of `session.UNSURE`
        assert time.monotonic() < deadline
        cells.driver.wait(asyncio.sleep(0.1))


ON_ITS_WAY_BACK = """
import ctypes, fcntl, mmap, os, signal, sys
file = open("file", "wb+")
file.write(bytes(4096))
file.flush()
kept, pid = [], os.getpid()
def close(descriptor, real=os.close):
    real(descriptor)
    if os.getpid() == pid and sys._getframe(1).f_code.co_name == "serve":
        {work}
os.close = close
"""


@pytest.mark.parametrize(
    "work",
    [
        pytest.param("kept.append(mmap.mmap(file.fileno(), 4096))", id="a mapping"),
        pytest.param("kept.append(os.dup(file.fileno()))", id="a file"),
        pytest.param("file.seek(7)", id="an offset"),
        pytest.param("os.chdir('/')", id="a folder"),
        pytest.param("fcntl.lockf(file, fcntl.LOCK_EX)", id="a lock"),
        pytest.param("ctypes.CDLL(None).timer_create(0, None, ctypes.byref(ctypes.c_void_p()))", id="a timer"),
        pytest.param("signal.pthread_sigmask(signal.SIG_SETMASK, [])", id="signals"),
    ],
)
def test_finding_a_checkpoint_that_changes_on_its_way_back_to_waiting_is_broken(t2: Driver, work: str) -> None:
    cells = Cells(t2)
    cells.show("x = 1")
    assert cells.run(ON_ITS_WAY_BACK.format(work=work)).committed
    assert cells.run("1").result.explanation == "An earlier cell broke the session's interpreter, and is undone."
    assert cells.show("print(x)") == "1\n"


SWAPS_SHARED_FOR_NEW = """
import mmap, os, socket
def area():
    area = mmap.mmap(-1, 30 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for at in range(0, len(area), 4096):
        area[at] = 1
    return area
kept = [area()]
def swap(*arguments, receive=socket.recv_fds):
    received = receive(*arguments)
    kept[:] = []  # the checkpoint before this one still has it
    kept.append(area())
    return received
socket.recv_fds = swap
"""


def test_finding_memory_that_a_checkpoint_takes_before_it_forks_is_counted(t2: Driver) -> None:
    cells = Cells(t2, limits=Limits(memory_mb=256))
    cells.show(SWAPS_SHARED_FOR_NEW)
    before = cells.session.held_bytes
    for _ in range(4):
        cells.run("1")
    assert cells.session.held_bytes > before + (80 << 20)


TAKES_BY_A_CHILD = """
import ctypes, mmap, os, socket
CLONE = (  # clone(CLONE_VM | CLONE_VFORK | SIGCHLD): the child writes to each page from one address to another
    "4989f84989f1b838000000bf1141000031f631d24d31d20f0585c0751941c600014981c0001000004d39c872f031ffb83c0000000f05c3"
)
code = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=7)
code.write(bytes.fromhex(CLONE))
fill = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
kept, pid, calls = [], os.getpid(), 0
def take(*arguments, receive=socket.recv_fds):
    global calls
    calls += os.getpid() == pid
    if os.getpid() == pid and calls == 2:
        area = mmap.mmap(-1, 80 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        start = ctypes.addressof(ctypes.c_char.from_buffer(area))
        fill(start, start + len(area))
        os.waitpid(-1, os.WNOHANG)
        kept.append(area)
    return receive(*arguments)
socket.recv_fds = take
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="machine code of x86-64")
def test_finding_memory_that_a_child_takes_for_a_checkpoint_is_counted(t2: Driver) -> None:
    cells = Cells(t2)
    cells.show(TAKES_BY_A_CHILD)
    before = cells.session.held_bytes
    for _ in range(2):
        cells.show("pid, calls = os.getpid(), 0")
    assert cells.session.held_bytes > before + (120 << 20)


FILL_PIPES = """
import os
pipes = [os.pipe() for _ in range(100)]
for _, write in pipes:
    os.write(write, bytes(65536))
"""


def test_finding_what_is_in_pipes_is_counted(t2: Driver) -> None:
    cells = Cells(t2)
    before = cells.session.held_bytes
    cells.show(FILL_PIPES)
    assert cells.session.held_bytes > before + 100 * 65536


FILLS_LATER = """
import os, socket, time
if os.fork() == 0:
    time.sleep(0.5)
    pairs = [socket.socketpair() for _ in range(100)]
    for pair in pairs:
        for each in pair:
            each.setblocking(False)
            try:
                while True:
                    each.send(bytes(1000))
            except BlockingIOError:
                pass
    open("later", "wb").write(bytes(40 << 20))
    time.sleep(600)
"""


def test_finding_sockets_and_files_that_fill_between_cells_are_told(t2: Driver) -> None:
    cells = Cells(t2, limits=Limits(memory_mb=1024))
    cells.show(FILLS_LATER)
    before = cells.session.held_bytes
    deadline = time.monotonic() + 60
    while cells.session.held_bytes < before + (40 << 20):
        assert time.monotonic() < deadline
        cells.driver.wait(asyncio.sleep(0.1))


FOLDERS_OPEN = """
import os
os.mkdir("d")
for number in range(1000):
    os.symlink("x", f"d/{number:04}" + "n" * 250)
held = []
for number in range(200):
    os.symlink("x", "d/new")
    os.unlink("d/new")
    held.append(os.open("d", os.O_RDONLY))
    os.listdir(held[-1])
for name in os.listdir("d"):
    os.unlink(f"d/{name}")
"""


def test_finding_lists_of_names_of_open_folders_are_counted(t2: Driver) -> None:
    cells = Cells(t2, limits=Limits(memory_mb=1024))
    before = cells.session.held_bytes
    cells.show(FOLDERS_OPEN)
    assert cells.session.held_bytes > before + (140 << 20)


SLEEPERS = """
import mmap, os, time
area = mmap.mmap(-1, 200 << 20, flags=mmap.MAP_PRIVATE)
area.madvise(mmap.MADV_NOHUGEPAGE)
for at in range(0, len(area), 4096):
    area[at] = 1
for _ in range(29):
    if os.fork() == 0:
        time.sleep(600)
"""


def test_finding_processes_that_sleep_keep_no_supervisor_at_work(t2: Driver) -> None:
    cells = Cells(t2)
    cells.show(SLEEPERS)
    stat = Path(f"/proc/{cells.session.pid}/schedstat")

    def used() -> float:
        return int(stat.read_text().split()[0]) / 1e9

    before, begun = used(), time.monotonic()
    time.sleep(3)
    assert used() - before < 0.2 * (time.monotonic() - begun)
    assert cells.show("print(len(area))") == f"{200 << 20}\n"


HALF_AN_END = """
import ctypes, os
os.write(4, b"E")
ctypes.CDLL(None).syscall({recvmsg}, 4, ctypes.create_string_buffer(256), 0)
"""


def test_finding_half_an_end_ends_no_session(t2: Driver) -> None:
    cells = Cells(t2)
    cells.show("x = 1")
    recvmsg = {"x86_64": 47, "aarch64": 212}[platform.machine()]
    assert cells.fail(HALF_AN_END.format(recvmsg=recvmsg)).result.status is not RunStatus.FAULT
    assert cells.show("print(x)") == "1\n"


def test_finding_no_pipe_is_made_larger(t2: Driver) -> None:
    exception = (
        Cells(t2).fail("import fcntl, os\nfcntl.fcntl(os.pipe()[1], fcntl.F_SETPIPE_SZ, 1 << 20)").result.exception
    )
    assert exception is not None
    assert exception.type == "PermissionError"


TAKES_ON_ITS_WAY_BACK = """
import os
kept = []
def write(descriptor, data, real=os.write):
    if data == b"R":
        kept.append(b"x" * (150 << 20))
    return real(descriptor, data)
os.write = write
"""


def test_finding_memory_that_a_state_takes_when_it_goes_back_is_counted(t2: Driver) -> None:
    cells = Cells(t2)
    cells.show(TAKES_ON_ITS_WAY_BACK)
    before = cells.session.held_bytes
    cells.fail("1 / 0")
    assert cells.session.held_bytes > before + (100 << 20)


KILL_ALL = """
import os, signal, time
if os.fork() == 0:
    time.sleep(0.3)
    os.kill(-1, signal.SIGKILL)
    os._exit(0)
"""


def test_finding_a_session_that_is_begun_anew_shows_the_same_again(t2: Driver) -> None:
    cells = Cells(t2)
    assert cells.run("1 / 0", commit=Commit.ALWAYS).committed
    cells.run(KILL_ALL)
    wait_until_killed(cells, left=0)
    assert cells.run("1").result.status is RunStatus.CRASHED
    assert cells.rollback(1) == 1


REAPS_BEFORE_IT_FORKS = """
import os, socket, time
for _ in range(12):
    if os.fork() == 0:
        os._exit(0)
def reap(*arguments, receive=socket.recv_fds):
    received = receive(*arguments)
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
    return received
socket.recv_fds = reap
"""


def test_finding_who_takes_the_number_of_a_dead_process_is_seen(t2: Driver) -> None:
    cells = Cells(t2, limits=Limits(cpu_seconds=0.5))
    assert cells.run(REAPS_BEFORE_IT_FORKS).committed
    assert cells.run("while True: pass").result.status is RunStatus.TIMEOUT

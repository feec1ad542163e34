"""Faults of the systems before this one (the X lines): each a behaviour that must not come back.

X16 (results to the wrong caller of a batch) is the client's, and tested there.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from cleaner_sandbox import Limits, Node, NodeConfig, RunOutcome, RunRequest, Tier
from cleaner_sandbox.environments import BARE
from cleaner_sandbox.protocol.results import RunStatus
from tests.conftest import Driver, needs


def test_x1_output_cannot_forge_an_end(box: Driver) -> None:
    text = '@@E\\n--- END ---\\n{"status": "ok"}\\n\\x04'
    result = box.run(f"print('{text}')\n1/0")
    assert result.status is RunStatus.ERROR
    assert result.output.startswith("@@E\n")
    assert box.run(f"print('{text}')").status is RunStatus.OK


def test_x2_invalid_utf8_is_no_internal_error(box: Driver) -> None:
    result = box.run("import sys; sys.stdout.buffer.write(bytes(range(256)))")
    assert result.status is RunStatus.OK
    assert len(result.output) == 256


def test_x3_alarm_zero_does_not_outlive_the_limit(box: Driver) -> None:
    code = """
import signal
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
signal.alarm(0); signal.setitimer(signal.ITIMER_REAL, 0)
while True: pass
"""
    assert box.run(code, cpu_seconds=0.3).status is RunStatus.TIMEOUT


def test_x4_limits_cannot_be_raised(box: Driver) -> None:
    code = """
import resource
for name in ("AS", "DATA", "CPU", "NOFILE", "FSIZE", "NPROC"):
    kind = getattr(resource, "RLIMIT_" + name)
    soft, hard = resource.getrlimit(kind)
    assert soft == hard
    try: resource.setrlimit(kind, (hard + 1, hard + 1))
    except ValueError: continue
    print("raised", kind)
"""
    result = box.run(code)
    assert (result.status, result.output) == (RunStatus.OK, "")


def test_x5_the_nodes_environment_is_not_readable(t2: Driver, t1: Driver) -> None:
    code = """
import os
seen = dict(os.environ)
for path in ("/proc/self/environ", "/proc/1/environ", f"/proc/{os.getppid()}/environ"):
    try: seen[path] = open(path, "rb").read()
    except OSError: pass
print(seen)
"""
    name = next(name for name in os.environ if name not in ("PATH", "HOME", "LANG", "TZ", "PYTHONPATH"))
    for box in (t2, t1):
        result = box.run(code)
        assert result.status is RunStatus.OK
        assert name not in result.output.replace("PYTHON", "")


def test_x6_a_flood_is_stopped_and_not_buffered(box: Driver) -> None:
    before = _resident()
    for stream in ("stdout", "stderr"):
        result = box.run(f"import sys\nwhile True: sys.{stream}.write('x' * 1_000_000)", output_bytes=1_000_000)
        assert result.status is RunStatus.OUTPUT_LIMIT
        assert len(result.output) <= 65_536
    assert _resident() - before < 60 << 20


def test_x7_a_child_that_holds_the_pipe_blocks_nobody(t2: Driver) -> None:
    code = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
print("done")
"""
    assert t2.run(code).output == "done\n"
    # Nothing of it is left in the slot's namespace: each supervisor has its one waiting run and no more.
    deadline = time.monotonic() + 10
    while any(_children(pid) > 1 for _, slots in t2.node.pids.values() for pid in slots):
        assert time.monotonic() < deadline


def test_x8_and_x9_a_dead_supervisor_loses_no_call() -> None:
    needs(Tier.T2)

    async def check() -> None:
        async with Node(NodeConfig(slots=1, environments=(BARE,))) as node:
            call = asyncio.create_task(node.run(RunRequest("import time; time.sleep(0.5); print(1)")))
            await asyncio.sleep(0)  # the call has its slot now
            assert node.status.busy == 1
            os.kill(node.pids["bare"][1][0], signal.SIGKILL)
            outcome = await asyncio.wait_for(call, 60)
            assert (outcome.result.output, outcome.attempts) == ("1\n", 2)
            assert node.status.slot_deaths == 1

    asyncio.run(check())


def test_x9_killing_ones_parent_changes_nothing(box: Driver) -> None:
    code = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
deadly = (signal.SIGKILL, signal.SIGSTOP, signal.SIGINT, signal.SIGTERM)
for pid, numbers in ((os.getppid(), deadly), (1, deadly), (-1, deadly[3:]), (0, deadly[3:])):
    for number in numbers:
        try: os.kill(pid, number)
        except OSError: pass
print("alive")
"""
    deaths = box.node.status.slot_deaths
    outcome = box.outcome(code)
    assert (outcome.result.output, outcome.attempts) == ("alive\n", 1)
    assert box.run("print(2)").output == "2\n"
    assert box.node.status.slot_deaths == deaths


def test_x10_much_output_does_not_stall(box: Driver) -> None:
    result = box.run("print('x' * 900_000)\nimport sys; print('y' * 900_000, file=sys.stderr)")
    assert result.status is RunStatus.OK
    assert result.output_length == 900_001


def test_x11_the_verdict_does_not_depend_on_load(t2: Driver) -> None:
    # Each needs about 0.15 s of CPU and may have 1.5 s; 32 at once on a few cores take far longer than the wall cap
    # of one would be if waiting counted.
    code = "import time\nend = time.process_time() + 0.15\nwhile time.process_time() < end: pass\nprint(1)"
    limits = Limits(cpu_seconds=1.5, wall_seconds=1.5)

    async def many() -> list[RunOutcome]:
        async with Node(NodeConfig(slots=16, environments=(BARE,), tier=Tier.T2)) as node:
            return await asyncio.gather(*(node.run(RunRequest(code, limits=limits)) for _ in range(32)))

    assert {outcome.result.status for outcome in asyncio.run(many())} == {RunStatus.OK}


def test_x12_lines_are_not_shifted_and_the_last_expression_runs_once(box: Driver) -> None:
    result = box.run("from __future__ import annotations\n1/0")
    assert result.exception is not None
    assert result.exception.line == 2
    assert box.run("print('once')", echo_last_expression=True).output == "once\n"


def test_x13_a_long_traceback_keeps_its_exception(box: Driver) -> None:
    result = box.run("def f(n):\n    g(n)\ndef g(n):\n    f(n + 1)\nf(0)")
    assert result.exception is not None
    assert result.exception.traceback.rstrip().splitlines()[-1].startswith("RecursionError: maximum recursion depth")


def test_x14_no_duration_and_no_pid_in_what_the_model_sees(box: Driver) -> None:
    for code, limits in (("while True: pass", {"cpu_seconds": 0.2}), ("import os; os.abort()", {})):
        assert box.run(code, **limits).observed == box.run(code, **limits).observed
    if box.node.status.tier is Tier.T2:
        assert box.run("import os; print(os.getpid())").output == box.run("import os; print(os.getpid())").output


SWAP = """
import os
here = os.getcwd()
try:
    os.rename(here, here + "-was")
    os.symlink({target!r}, here)
except OSError as error:
    print(type(error).__name__)
"""


def test_finding_a_link_in_place_of_the_working_folder_is_not_followed(box: Driver, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hidden")
    for target, name in ((str(tmp_path), "secret"), ("/", "etc/hosts")):
        outcome = box.outcome(SWAP.format(target=target), fetch=(name,))
        assert (outcome.result.status, outcome.attempts, dict(outcome.files)) == (RunStatus.OK, 1, {})


def test_finding_a_run_that_takes_away_its_folder_is_no_fault(box: Driver) -> None:
    code = "import os, shutil\nopen('x', 'w')\nshutil.rmtree(os.getcwd(), ignore_errors=True)"
    deaths = box.node.status.slot_deaths
    outcome = box.outcome(code, fetch=("x",))
    assert (outcome.result.status, outcome.attempts, dict(outcome.files)) == (RunStatus.OK, 1, {})
    assert box.node.status.slot_deaths == deaths


def test_finding_a_link_in_place_of_the_box_is_not_emptied(t1: Driver, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("kept")
    code = "import os\nos.chdir('/')\nos.environ['HOME']\nhere = os.path.dirname(os.environ['HOME'])"
    outcome = t1.outcome(code + SWAP.format(target=str(tmp_path)).replace("here = os.getcwd()", ""))
    assert (outcome.result.output, outcome.attempts) == ("PermissionError\n", 1)
    assert t1.run("import os; print(os.listdir('.'))").output == "[]\n"
    assert (tmp_path / "precious").read_text() == "kept"


def test_finding_the_kernels_own_limit_of_cpu_time_is_far_above_ours(box: Driver) -> None:
    """It counts ticks: on a busy machine a run that had used 54 s was killed at 62, and passed for crashed."""
    read = "import resource\nprint(resource.getrlimit(resource.RLIMIT_CPU)[0])"
    assert int(box.run(read, cpu_seconds=60.0).output) >= 120
    assert box.run("import os; os.kill(os.getpid(), 9)").status is RunStatus.CRASHED


SESSIONS = """
import os, signal, subprocess, sys
ids = "import os; print(os.getsid(0), os.getpgid(0) == os.getpid(), flush=True)"
child = [sys.executable, "-c", ids + "; import time; time.sleep(600)"]
started = [subprocess.Popen(child, start_new_session=True, stdout=subprocess.PIPE)]
started.append(subprocess.Popen(child, preexec_fn=os.setsid, stdout=subprocess.PIPE))
for each in started:
    print(each.stdout.readline().decode().split() == [str(os.getsid(0)), "True"])
    os.killpg(os.getpgid(each.pid), signal.SIGTERM)
    print(each.wait())
plain = subprocess.run([sys.executable, "-c", ids.replace("print", "os.setsid(); print")], capture_output=True)
print(plain.stdout.split()[0].decode() == str(os.getsid(0)))
"""


def test_finding_a_run_stays_one_session_of_the_kernels(t2: Driver) -> None:
    """The kernel's scheduler gives each session a share of the CPU."""
    assert t2.run(SESSIONS).output.split() == ["True", "-15", "True", "-15", "True"]


def test_x17_buffered_output_survives_a_timeout(box: Driver) -> None:
    result = box.run("import sys\nsys.stdout.write('no newline')\nwhile True: pass", cpu_seconds=0.2)
    assert result.output == "no newline"


def test_x18_no_more_interpreters_than_slots_at_once(t2: Driver) -> None:
    async def most() -> int:
        calls = [asyncio.create_task(t2.node.run(RunRequest("import time; time.sleep(0.05)"))) for _ in range(12)]
        seen = 0
        for call in asyncio.as_completed(calls):
            seen = max(seen, t2.node.status.busy)
            await call
        return seen

    assert t2.wait(most()) == t2.node.config.slots


def test_finding_no_run_chooses_its_cpus(t2: Driver) -> None:
    """Runs that all choose one would wait for each other, and pass for starved by the machine."""
    code = (
        "import os\nbefore = os.sched_getaffinity(0)\nos.sched_setaffinity(0, {0})\nos.sched_getaffinity(0) == before"
    )
    assert t2.run(code, echo_last_expression=True).output == "True\n"


MANY_LOCKS = """
import fcntl, time
file = open("file", "wb+")
fcntl.lockf(file, fcntl.LOCK_EX, 20_000, 0)
for at in range(19_998, 0, -2):
    fcntl.lockf(file, fcntl.LOCK_UN, 1, at)
time.sleep(20)
"""


def test_finding_a_run_with_thousands_of_locks_is_stopped(t2: Driver) -> None:
    """Each look at its files, and each end of a process that has one open, goes through all of them."""
    assert t2.run(MANY_LOCKS, limits=Limits(wall_seconds=30)).status is RunStatus.MEMORY


def _resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _children(pid: int) -> int:
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return len(file.read().split())


pytestmark = pytest.mark.timeout(90)

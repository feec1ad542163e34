"""The node as its callers and operators see it: limits per call, deaths, cancelling, cleaning up."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from cleaner_sandbox import BARE, Environment, Layer, Limits, Node, NodeConfig, RunRequest, SessionLostError, Tier
from cleaner_sandbox.isolation import layout
from cleaner_sandbox.node import pool
from cleaner_sandbox.node.node import sweep
from cleaner_sandbox.node.zygotes import SlotDiedError
from cleaner_sandbox.protocol.results import RunStatus
from tests.conftest import Driver, needs


def with_node(check: Callable[[Node], Awaitable[None]], **options: object) -> None:
    """Run a check against a small node of its own."""
    needs(Tier.T2)

    async def main() -> None:
        async with Node(NodeConfig(**{"slots": 1, "environments": (BARE,)} | options)) as node:  # type: ignore[arg-type]
            await check(node)

    asyncio.run(main())


async def until(true: Callable[[], bool], seconds: float = 30) -> None:
    """Wait for something that has no event of its own."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def test_runs_do_not_see_each_other(box: Driver) -> None:
    write = """
import os, builtins, json, random, sys
for path in ("mine", "/tmp/mine", "/dev/shm/mine", os.path.expanduser("~/mine")):
    try: open(path, "w").write("here")
    except OSError: pass
builtins.leak = json.leak = sys.leak = 1
os.environ["LEAK"] = "1"
os.chmod(".", 0)
"""
    look = """
import os, builtins, json, sys
paths = [p for p in ("mine", "/tmp/mine", "/dev/shm/mine") if os.path.exists(p)]
print(paths, os.listdir("."), [hasattr(m, "leak") for m in (builtins, json, sys)], "LEAK" in os.environ)
"""
    for _ in range(4):
        assert box.run(write).status is RunStatus.OK
        assert box.run(look).output == "[] [] [False, False, False] False\n"


def test_a_request_that_its_run_did_not_finish_reading_is_not_the_next_ones() -> None:
    async def check(node: Node) -> None:
        for _ in range(3):
            stopped = await node.run(RunRequest("print(1)", stdin=bytes(100 << 20), limits=Limits(cpu_seconds=0.001)))
            assert (stopped.result.status, stopped.attempts) == (RunStatus.TIMEOUT, 1)
            after = await node.run(RunRequest("print(2)"))
            assert (after.result.output, after.attempts) == ("2\n", 1)

    with_node(check)


def test_a_slot_outlives_its_runs_however_fast_they_come() -> None:
    async def check(node: Node) -> None:
        for _ in range(500):
            assert (await node.run(RunRequest("print(1)"))).attempts == 1
        assert node.status.slot_deaths == 0

    with_node(check)


def test_a_run_finds_nothing_of_earlier_ones_in_its_memory(t2: Driver) -> None:
    sentinel = "f1nd-me-" + "if-you-can"
    for _ in range(4):
        t2.run(f"x = input()\nprint(x, {sentinel!r})", stdin=sentinel, files={"f": sentinel.encode()})
    code = """
import ctypes, os, re, sys
libc = ctypes.CDLL(None)
there, here = os.pipe()
def page(address):  # through a pipe: where nothing can be read, the kernel says so, and nobody dies
    readable = libc.write(here, ctypes.c_void_p(address), 4096) == 4096
    return os.read(there, 4096) if readable else b""
things = [id(value) for module in list(sys.modules.values()) for value in vars(module).values()]
regions = {each >> 20 for each in things}
pages = [page((each << 20) + offset) for each in regions for offset in range(0, 1 << 20, 4096)]
print(sum(map(len, pages)) > 3 << 20, re.findall(rb"f1nd-me-[i]f-you", b"".join(pages)))
"""
    # All megabytes of memory in which anything lies that a module holds.
    assert t2.run(code, environment="bare", memory_mb=1000).output == "True []\n"


def test_disk_and_file_limits_are_per_call(t2: Driver) -> None:
    fill = "f = open('big', 'wb')\nfor _ in range(40): f.write(bytes(1 << 20))\nf.flush()\nprint('full')"
    many = "for i in range(300): open(str(i), 'w').close()\nprint('many')"
    assert t2.run(fill).output == "full\n"
    assert t2.run(fill, limits=Limits(disk_mb=8)).status is RunStatus.ERROR
    assert t2.run(fill, limits=Limits(disk_mb=200)).output == "full\n"
    assert t2.run(many).output == "many\n"
    assert t2.run(many, limits=Limits(files=100)).status is RunStatus.ERROR
    result = t2.run("print(1)", files={str(i): b"" for i in range(200)}, limits=Limits(files=100))
    assert result.status is RunStatus.ERROR


def test_processes_are_bounded(t2: Driver) -> None:
    code = """
import os, time
count = 0
try:
    while count < 100:
        if os.fork() == 0:
            time.sleep(30)
        count += 1
except OSError:
    pass
print(count)
"""
    assert int(t2.run(code, processes=8).output) < 8
    assert t2.run("print(1)").output == "1\n"


def test_cpu_time_of_children_counts(t2: Driver) -> None:
    code = "import os\nfor _ in range(3): os.fork()\nwhile True: pass"
    assert t2.run(code, cpu_seconds=1).status is RunStatus.TIMEOUT
    # Children that end and are waited for count, too.
    chain = """
import os
for _ in range(30):
    if os.fork() == 0:
        for _ in range(3_000_000): pass
        os._exit(0)
    os.wait()
"""
    assert t2.run(chain, cpu_seconds=0.5).status is RunStatus.TIMEOUT


def test_sleeping_is_bounded_by_the_wall_cap_alone(box: Driver) -> None:
    assert box.run("import time; time.sleep(1)", cpu_seconds=0.5).status is RunStatus.OK
    assert box.run("import time; time.sleep(5)", wall_seconds=0.3).status is RunStatus.TIMEOUT
    assert box.run("import os; os.read(os.pipe()[0], 1)", wall_seconds=0.3).status is RunStatus.TIMEOUT


def test_memory_reserved_in_an_output_is_output(box: Driver) -> None:
    reserve = "import ctypes, time\nctypes.CDLL(None).fallocate({}, 1, ctypes.c_long(0), ctypes.c_long(40 << 20))\n"
    for output in (1, 2, 3):
        assert box.run(reserve.format(output) + "time.sleep(9)").status is RunStatus.OUTPUT_LIMIT


def test_what_lies_in_sockets_counts_as_memory(t2: Driver) -> None:
    send = """
import socket, time
listener = socket.socket(socket.AF_UNIX)
listener.bind("listener")
listener.listen(4096)
for _ in range({}):
    with socket.socket(socket.AF_UNIX) as sender:
        sender.connect("listener")
        sender.send(bytes(100_000))
time.sleep(0.5)
"""
    assert t2.run(send.format(20), memory_mb=16).status is RunStatus.OK
    assert t2.run(send.format(1000), memory_mb=64).status is RunStatus.MEMORY


def test_cancelling_kills_the_run() -> None:
    async def check(node: Node) -> None:
        call = asyncio.create_task(node.run(RunRequest("while True: pass")))
        await asyncio.sleep(0)
        supervisor = node.pids["bare"][1][0]
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: not Path(f"/proc/{supervisor}").exists())
        assert (await node.run(RunRequest("print(1)"))).result.output == "1\n"
        assert node.status.busy == 0

    with_node(check)


@pytest.mark.parametrize("meets_it", ["a slot that died", "a session", "files of an environment"])
def test_a_zygote_that_hangs_is_replaced(meets_it: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def check(node: Node) -> None:
        zygote, (supervisor,) = node.pids["bare"]
        monkeypatch.setattr(pool, "START_SECONDS", 3.0)
        os.kill(zygote, signal.SIGSTOP)
        if meets_it == "a session":
            with pytest.raises(SessionLostError):
                await node.open_session()
        elif meets_it == "a slot that died":
            os.kill(supervisor, signal.SIGKILL)
        else:
            with pytest.raises(SlotDiedError):
                await node._pools["bare"].take_with(str(tmp_path))
        await until(lambda: node.status.zygote_deaths == 1 and node.pids["bare"][0] not in (zygote, -1), 60)
        assert (await node.run(RunRequest("print(2)"))).result.output == "2\n"
        with pytest.raises(ProcessLookupError):
            os.kill(zygote, 0)
        if meets_it == "a session":
            session = await node.open_session()
            assert (await session.run("print(3)")).result.output == "3\n"

    with_node(check)


def test_a_dead_zygote_is_replaced_and_no_run_notices() -> None:
    async def check(node: Node) -> None:
        call = asyncio.create_task(node.run(RunRequest("import time; time.sleep(0.3); print(1)")))
        await asyncio.sleep(0)
        zygote = node.pids["bare"][0]
        os.kill(zygote, signal.SIGKILL)
        assert (await call).attempts == 1
        await until(lambda: node.pids["bare"][0] not in (zygote, -1))
        os.kill(node.pids["bare"][1][0], signal.SIGKILL)
        await until(lambda: node.status.slot_deaths == 1)
        assert (await node.run(RunRequest("print(2)"))).result.output == "2\n"
        assert (node.status.zygote_deaths, node.status.faults) == (1, 0)

    with_node(check)


def test_a_supervisor_that_dies_twice_is_a_fault() -> None:
    async def check(node: Node) -> None:
        call = asyncio.create_task(node.run(RunRequest("import time; time.sleep(20)")))
        for deaths in (1, 2):
            await until(lambda: node.status.busy == 1 and len(node.pids["bare"][1]) == 1)
            os.kill(node.pids["bare"][1][0], signal.SIGKILL)
            await until(lambda deaths=deaths: node.status.slot_deaths == deaths)  # type: ignore[misc]
        outcome = await call
        assert (outcome.result.status, outcome.attempts) == (RunStatus.FAULT, 2)
        assert node.status.faults == 1

    with_node(check)


def test_a_closed_node_leaves_nothing_behind() -> None:
    needs(Tier.T2)
    pids: list[int] = []
    mine = f"cleaner-sandbox-{os.getpid()}-*"
    folders = set(Path("/tmp").glob(mine))

    async def main() -> None:
        async with Node(NodeConfig(slots=2)) as node:
            call = asyncio.create_task(node.run(RunRequest("while True: pass")))
            await asyncio.sleep(0)
            pids.extend(pid for zygote, slots in node.pids.values() for pid in (zygote, *slots))
            call.cancel()
        await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))

    descriptors = len(os.listdir("/proc/self/fd"))
    asyncio.run(main())
    assert len(pids) == 6
    assert set(Path("/tmp").glob(mine)) == folders
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_what_a_killed_node_left_is_swept_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = subprocess.Popen(["true"])
    ended.wait()
    kept = [tmp_path / f"cleaner-sandbox-{os.getpid()}-x", tmp_path / "cleaner-sandbox-other", tmp_path / "else"]
    for path in (*kept, tmp_path / f"cleaner-sandbox-{ended.pid}-y"):
        (path / "root").mkdir(parents=True)
    sweep()
    assert sorted(tmp_path.iterdir()) == sorted(kept)


def test_no_folder_is_too_deep_to_be_cleared_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    async def check(node: Node) -> None:
        for _ in range(2):
            nest = "import os\nfor _ in range(1200):\n    os.mkdir('inner')\n    os.chdir('inner')"
            outcome = await node.run(RunRequest(nest))
            assert (outcome.result.status, outcome.attempts) == (RunStatus.OK, 1)
        assert (await node.run(RunRequest("import os; print(os.listdir())"))).result.output == "[]\n"
        assert node.status.slot_deaths == 0

    with_node(check, tier=Tier.T1)
    assert not list(tmp_path.iterdir())


def test_descriptors_and_memory_stay_flat() -> None:
    async def check(node: Node) -> None:
        for _ in range(20):
            await node.run(RunRequest("print(1)"))
        before = len(os.listdir("/proc/self/fd"))
        supervisor = node.pids["bare"][1][0]
        theirs = len(os.listdir(f"/proc/{supervisor}/fd"))
        for _ in range(100):
            await node.run(RunRequest("print(1)", fetch=("x",)))
        assert len(os.listdir(f"/proc/{supervisor}/fd")) < theirs + 10  # it has up to six more while a run waits
        assert len(os.listdir("/proc/self/fd")) == before

    with_node(check)


def test_layers_can_be_left_out_one_by_one() -> None:
    for layer in Layer:
        if layer is Layer.CGROUP:
            continue

        async def check(node: Node) -> None:
            assert (await node.run(RunRequest("print(1)"))).result.output == "1\n"

        with_node(check, tier=Tier.T2, min_tier=Tier.NONE, without=frozenset({layer}))


def test_no_tier_at_all_still_has_a_verdict_and_a_wall_cap() -> None:
    async def check(node: Node) -> None:
        assert (await node.run(RunRequest("print(1)"))).result.output == "1\n"
        assert (await node.run(RunRequest("1/0"))).result.status is RunStatus.ERROR
        endless = RunRequest("while True: pass", limits=Limits(wall_seconds=0.3))
        assert (await node.run(endless)).result.status is RunStatus.TIMEOUT

    with_node(check, tier=Tier.NONE, min_tier=Tier.NONE)


def test_a_set_of_ones_own() -> None:
    own = Environment("own", modules=("acme",), packages=("acme",))

    async def check(node: Node) -> None:
        outcome = await node.run(RunRequest("import acme\nprint(acme.x)"))
        assert (outcome.result.output, outcome.environment) == ("42\n", "own")
        assert outcome.result.versions["acme"] == "3.2"

    # Not below /tmp: runs have a /tmp of their own.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        os.chmod(folder, 0o755)
        make_distribution(Path(folder))
        with_node(check, environments=(BARE, dataclasses.replace(own, site=folder)))


def test_packages_below_a_runs_own_folders_are_refused(tmp_path: Path) -> None:
    make_distribution(tmp_path)
    with pytest.raises(ValueError, match="packages"):
        layout.root(Environment("own", packages=("acme",), site=str(tmp_path)))


def make_distribution(site: Path) -> None:
    """As `pip install --target` leaves one."""
    files = {
        "acme/__init__.py": "__version__ = '3.2'\nfrom acme.more import x\n",
        "acme/more.py": "x = 41 + 1\n",
        "acme-3.2.dist-info/METADATA": "Metadata-Version: 2.1\nName: acme\nVersion: 3.2\n",
    }
    for name, text in files.items():
        (site / name).parent.mkdir(exist_ok=True)
        (site / name).write_text(text)
    (site / "acme-3.2.dist-info" / "RECORD").write_text("".join(f"{name},,\n" for name in files))

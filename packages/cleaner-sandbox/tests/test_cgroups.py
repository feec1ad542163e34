"""Tier 3: what is written where, on folders that stand in for cgroups of both versions; and on this machine's kernel,
that it bounds and counts what no look at `/proc` sees. `benchmarks/sandbox_qemu.py` tries a kernel with version 2."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleaner_sandbox import BARE, Layer, NodeConfig, Tier, TierError
from cleaner_sandbox.check import ATTACKS
from cleaner_sandbox.check.attacks.resources_kernel import SCALE
from cleaner_sandbox.inside.counted import Counted
from cleaner_sandbox.isolation.cgroups import LEAF, Cgroup, own_cgroup, problem
from cleaner_sandbox.isolation.tiers import choose_tier
from cleaner_sandbox.protocol.results import RunStatus
from tests.conftest import Driver, needs


def test_version_2_has_all_bounds_in_one_folder(tmp_path: Path) -> None:
    (tmp_path / "cgroup.procs").write_text("7\n")
    slot = Cgroup(tmp_path, tmp_path, tmp_path).for_node().child("slot")
    # Not the node's process alone: where any is left, the kernel refuses to hand out controllers.
    assert (tmp_path / LEAF / "cgroup.procs").read_text() == "7"
    (folder,) = tmp_path.glob("cleaner-*")
    for each in (tmp_path, folder):
        assert (each / "cgroup.subtree_control").read_text() == "+memory +pids"
    slot.bound(1000, 20)
    assert (folder / "slot" / "memory.max").read_text() == "1000"
    assert (folder / "slot" / "pids.max").read_text() == "20"
    (folder / "slot" / "memory.events").write_text("low 0\noom 1\noom_kill 3\n")
    assert slot.oom_kills() == 3


def test_version_1_has_a_tree_for_each_controller(tmp_path: Path) -> None:
    memory, pids, cpu = tmp_path / "memory", tmp_path / "pids", tmp_path / "cpuacct"
    for each in (memory, pids, cpu):
        each.mkdir()
    slot = Cgroup(memory, pids, cpu).for_node().child("slot")
    assert not (memory / "cgroup.procs").exists()
    (folder,), (of_pids,) = memory.glob("cleaner-*"), pids.glob("cleaner-*")
    slot.bound(1000, 20)
    assert (folder / "slot" / "memory.limit_in_bytes").read_text() == "1000"
    assert (of_pids / "slot" / "pids.max").read_text() == "20"
    (folder / "slot" / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    assert slot.oom_kills() == 2


@pytest.mark.parametrize(
    ("folders", "membership", "memory"),
    [
        (("a/b",), "1:name=systemd:/x\n0::/a/b\n", "a/b"),
        (("a/b",), f"0::/a/b/{LEAF}\n", "a/b"),
        (("memory/c", "pids/d", "cpuacct/e"), "4:memory:/c\n8:cpu,pids:/d\n3:cpuacct:/e\n0::/\n", "memory/c"),
    ],
    ids=["version 2", "version 2, where another node has moved it", "version 1"],
)
def test_a_process_finds_the_cgroup_that_it_is_in(
    tmp_path: Path, folders: tuple[str, ...], membership: str, memory: str
) -> None:
    for name in folders:
        (tmp_path / name).mkdir(parents=True)
    if len(folders) == 1:
        (tmp_path / "a/b/cgroup.controllers").write_text("cpu memory pids\n")
    (tmp_path / "membership").write_text(membership)
    own = own_cgroup(tmp_path, tmp_path / "membership")
    assert isinstance(own, Cgroup)
    own.child("slot")
    assert (tmp_path / memory / "slot").is_dir()


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "membership").write_text("0::/\n")
    (tmp_path / "cgroup.controllers").write_text("cpu pids\n")
    missing = own_cgroup(tmp_path, tmp_path / "membership")
    assert isinstance(missing, str)
    assert "memory" in missing
    assert isinstance(own_cgroup(tmp_path, tmp_path / "none"), str)


def test_the_tier_is_taken_only_if_told_to() -> None:
    probes = dict.fromkeys(("seccomp", "landlock", "namespaces", "cgroup"), "ok")
    assert choose_tier(probes, None, Tier.T1) is Tier.T2
    assert choose_tier(probes, Tier.T3, Tier.T1) is choose_tier(probes, None, Tier.T3) is Tier.T3
    with pytest.raises(TierError, match="no groups"):
        choose_tier(probes | {"cgroup": "no groups"}, Tier.T3, Tier.T1)


VERSION_1 = ("7250000000\n", "900\n", "cache 300\nrss 500\nshmem 100\n", "oom_kill 2\n")
VERSION_2 = (
    "usage_usec 7250000\nuser_usec 1\n",
    "900\n",
    "anon 500\nfile 300\nshmem 100\nslab_reclaimable 50\n",
    "oom 1\noom_kill 2\n",
)


@pytest.mark.parametrize(("texts", "held"), [(VERSION_1, None), (VERSION_2, 650)], ids=["version 1", "version 2"])
def test_a_supervisor_reads_what_the_kernel_counts(tmp_path: Path, texts: tuple[str, ...], held: int | None) -> None:
    for number, text in enumerate((*texts, "")):
        (tmp_path / str(number)).write_text(text)
    files = [os.open(tmp_path / str(number), os.O_RDWR) for number in range(5)]
    before = time.process_time()
    counted = Counted(files)
    assert (tmp_path / "4").read_text() == "0"
    used = counted.cpu_seconds()
    assert 7.25 - time.process_time() <= used <= 7.25 - before
    assert counted.killed() == 2
    assert (counted.held() if counted.tells_held else None) == held
    for descriptor in files[:4]:
        os.close(descriptor)


@pytest.fixture(scope="module")
def counted() -> Iterator[Driver]:
    """A node of tier 3."""
    needs(Tier.T2)
    if (why := problem()) is not None:
        pytest.skip(f"no cgroups here: {why}")
    driver = Driver(NodeConfig(slots=1, environments=(BARE,), tier=Tier.T3))
    yield driver
    driver.close()


UNSEEN = """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them, so nobody is told what they used
for _ in range({count}):
    if os.fork() == 0:
        while time.process_time() < 0.02:
            pass
        os._exit(0)
    try:
        os.wait()
    except ChildProcessError:
        pass
print("done")
"""


def test_time_of_processes_that_nobody_saw_is_counted(counted: Driver) -> None:
    outcome = counted.outcome(UNSEEN.format(count=20), cpu_seconds=20.0, wall_seconds=60.0)
    assert outcome.result.output == "done\n"
    assert 0.4 <= outcome.cpu_seconds < 20
    assert counted.run(UNSEEN.format(count=500), cpu_seconds=1.0, wall_seconds=60.0).status is RunStatus.TIMEOUT
    assert counted.outcome("print(1)").cpu_seconds < 0.4


SHARED = """
import os, time
data = bytearray(60 << 20)
data[::4096] = b"x" * len(data[::4096])
if os.fork() == 0:
    time.sleep(0.3)
    os._exit(sum(data[::4096]) == 0)
with open("file", "wb") as file:
    for _ in range(40):
        file.write(bytes(1 << 20))
print(os.wait()[1])
"""


def test_memory_that_is_shared_counts_once_and_files_count_as_files(counted: Driver) -> None:
    assert counted.run(SHARED, memory_mb=96, disk_mb=64).output == "0\n"


@pytest.fixture(scope="module")
def nothing_counted() -> Iterator[Driver]:
    """A node of tier 3 with neither a filter nor a supervisor that counts: only the kernel bounds its memory."""
    needs(Tier.T2)
    if (why := problem()) is not None:
        pytest.skip(f"no cgroups here: {why}")
    without = frozenset({Layer.SECCOMP, Layer.WATCH})
    driver = Driver(NodeConfig(slots=1, environments=(BARE,), tier=Tier.T3, min_tier=Tier.NONE, without=without))
    yield driver
    driver.close()


@pytest.mark.parametrize("name", ["memory_page_tables", "memory_spliced_pages", "memory_watch_events"])
def test_a_cgroup_alone_bounds_the_kernels_memory(nothing_counted: Driver, name: str) -> None:
    (attack,) = (each for each in ATTACKS if each.name == name)
    program = "import os, time\nwin = print\n" + attack.program.replace(SCALE, "scale = 5\n")
    result = nothing_counted.run(program, memory_mb=24, disk_mb=16, cpu_seconds=20.0, open_files=1024)
    # Where another process than the first one took it all, that one is killed, and the first goes on.
    assert result.status is RunStatus.MEMORY or name == "memory_page_tables"
    assert int(result.output or 0) < 160 << 20
    status = nothing_counted.node.status
    assert (status.slot_deaths, status.faults) == (0, 0)
    assert nothing_counted.run("print(1)").output == "1\n"


def test_a_slots_cgroup_goes_with_its_node() -> None:
    needs(Tier.T2)
    if problem() is not None:
        pytest.skip("no cgroups here")
    own = own_cgroup()
    assert isinstance(own, Cgroup)
    before = {path for folder in own._folders for path in folder.glob("cleaner-*")}
    driver = Driver(NodeConfig(slots=1, environments=(BARE,), tier=Tier.T3))
    folders = {path for folder in own._folders for path in folder.glob(f"cleaner-{os.getpid()}-*")} - before
    assert folders
    assert all((path / "0" / "cgroup.procs").read_text() for path in folders)
    driver.close()
    assert not any(path.exists() for path in folders)

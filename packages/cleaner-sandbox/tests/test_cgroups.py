"""Tier 3: what is written where in both versions, and on a kernel with version 1, that it bounds what no count sees."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleaner_sandbox import BARE, Layer, NodeConfig, Tier, TierError
from cleaner_sandbox.check import ATTACKS
from cleaner_sandbox.check.attacks.resources_kernel import SCALE
from cleaner_sandbox.isolation.cgroups import Cgroup, own_cgroup, problem
from cleaner_sandbox.isolation.tiers import choose_tier
from cleaner_sandbox.protocol.results import RunStatus
from tests.conftest import Driver, needs


def test_version_2_has_all_bounds_in_one_folder(tmp_path: Path) -> None:
    slot = Cgroup(tmp_path, tmp_path).for_node().child("slot")
    assert (tmp_path / "node" / "cgroup.procs").exists()
    (folder,) = tmp_path.glob("cleaner-*")
    for each in (tmp_path, folder):
        assert (each / "cgroup.subtree_control").read_text() == "+memory +pids"
    slot.bound(1000, 20)
    assert (folder / "slot" / "memory.max").read_text() == "1000"
    assert (folder / "slot" / "pids.max").read_text() == "20"
    assert slot.oom_kills() == 0
    (folder / "slot" / "memory.events").write_text("low 0\noom 1\noom_kill 3\n")
    assert slot.oom_kills() == 3


def test_version_1_has_a_tree_for_each_controller(tmp_path: Path) -> None:
    memory, pids = tmp_path / "memory", tmp_path / "pids"
    memory.mkdir()
    pids.mkdir()
    slot = Cgroup(memory, pids).for_node().child("slot")
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
        (("memory/c", "pids/d", "unified"), "4:memory:/c\n8:cpu,pids:/d\n0::/\n", "memory/c"),
    ],
    ids=["version 2", "version 1"],
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


@pytest.fixture(scope="module")
def nothing_counted() -> Iterator[Driver]:
    """A node of tier 3 with neither a filter nor a supervisor that counts: only the kernel bounds its memory."""
    needs(Tier.T2)
    if (why := problem()) is not None:
        pytest.skip(f"no cgroups here: {why}")
    without = frozenset({Layer.SECCOMP, Layer.WATCH})
    driver = Driver(NodeConfig(slots=1, preload=(BARE,), tier=Tier.T3, min_tier=Tier.NONE, without=without))
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
    driver = Driver(NodeConfig(slots=1, preload=(BARE,), tier=Tier.T3))
    folders = {path for folder in own._folders for path in folder.glob(f"cleaner-{os.getpid()}-*")} - before
    assert folders
    driver.close()
    assert not any(path.exists() for path in folders)

"""In a container supervisors come before the runs that they watch; elsewhere the kernel sees to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleaner_sandbox import BARE, NodeConfig, Tier
from cleaner_sandbox.node import config
from tests.conftest import Driver, needs


@pytest.mark.parametrize(
    ("membership", "limited", "inside"),
    [
        ("2:cpu,cpuacct:/libpod_parent/libpod-1\n0::/\n", "", True),
        ("2:cpu,cpuacct:/\n1:cpuset:/some\n0::/\n", "", False),
        ("0::/\n", ".", True),  # version 2, seen from a cgroup namespace: the machine's own root has no cpu.max
        ("0::/\n", "", False),
        ("0::/system.slice/node.service\n", "system.slice/node.service", True),
        ("0::/user.slice\n", "", False),
    ],
)
def test_finding_a_container_is_known_by_its_cpu_cgroup(
    tmp_path: Path, membership: str, limited: str, inside: bool
) -> None:
    (tmp_path / "membership").write_text(membership)
    if limited:
        (tmp_path / limited).mkdir(parents=True, exist_ok=True)
        (tmp_path / limited / "cpu.max").touch()
    assert config.in_cpu_cgroup(tmp_path / "membership", tmp_path) is inside


@pytest.mark.parametrize("tier", [Tier.T1, Tier.T2])
def test_finding_runs_give_way_to_their_supervisor_in_a_container(tier: Tier, monkeypatch: pytest.MonkeyPatch) -> None:
    needs(tier)
    monkeypatch.setattr(config, "in_cpu_cgroup", lambda: True)
    driver = Driver(NodeConfig(slots=1, environments=(BARE,), tier=tier))
    shown = driver.run("import os\nprint(os.getpriority(os.PRIO_PROCESS, 0))\nos.nice(-1)")
    driver.close()
    assert int(shown.output) >= config.GIVE_WAY
    assert shown.exception is not None
    assert shown.exception.type in ("OSError", "PermissionError")

"""Tier 3 writes the right things to the right files; whether a kernel likes them is untested."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cleaner_rl.sandbox import Tier, TierError
from cleaner_rl.sandbox.isolation.cgroups import Cgroups, own_cgroup, problem
from cleaner_rl.sandbox.isolation.tiers import choose_tier


def test_a_slots_group_has_the_bounds_and_the_supervisor(tmp_path: Path) -> None:
    for name in ("node", "slot3"):
        (tmp_path / name).mkdir()
    group = Cgroups(tmp_path, 1000, 20).make(3, os.getpid())
    assert (tmp_path / "node" / "cgroup.procs").read_text() == str(os.getpid())
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory +pids"
    slot = tmp_path / "slot3"
    assert (slot / "memory.max").read_text() == "1000"
    assert (slot / "pids.max").read_text() == "20"
    assert (slot / "cgroup.procs").exists()
    assert not group.ran_out()
    (slot / "memory.events").write_text("low 0\noom 1\noom_kill 1\n")
    assert group.ran_out()
    assert not group.ran_out()


def test_the_probe_says_what_is_missing(tmp_path: Path) -> None:
    assert problem(tmp_path) == "there is no cgroup v2 hierarchy"
    membership = tmp_path / "membership"
    membership.write_text("1:name=systemd:/x\n0::/a/b\n")
    assert own_cgroup(tmp_path, membership) == tmp_path / "a" / "b"


def test_the_tier_is_taken_only_if_told_to() -> None:
    probes = dict.fromkeys(("seccomp", "landlock", "namespaces", "cgroup"), "ok")
    assert choose_tier(probes, None, Tier.T1) is Tier.T2
    assert choose_tier(probes, Tier.T3, Tier.T1) is choose_tier(probes, None, Tier.T3) is Tier.T3
    with pytest.raises(TierError, match="no groups"):
        choose_tier(probes | {"cgroup": "no groups"}, Tier.T3, Tier.T1)

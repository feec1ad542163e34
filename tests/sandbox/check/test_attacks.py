"""A cut of the attacks, for every change; `cleaner sandbox check` runs them all."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.sandbox_fuzz import fuzz
from cleaner_rl.sandbox import Layer, Tier
from cleaner_rl.sandbox.check import ATTACKS, Verdict, check_node
from cleaner_rl.sandbox.check.proof import Trial, run_trial
from cleaner_rl.tools import Status
from tests.sandbox.conftest import needs

CUT = [
    attack
    for number, attack in enumerate(ATTACKS)
    if number % 3 == 0 and not {Status.TIMEOUT} >= attack.right and attack.limits.wall_seconds <= 2
]
EFFECTIVE = "fork_bomb secret_environment secret_token_file net_tcp across_file_in_tmp door_bpf kill_parent"
PROVEN = [attack for attack in ATTACKS if attack.name in EFFECTIVE.split()]
BY_LAYER = {
    Layer.ENVIRONMENT: "secret_environment",
    Layer.MOUNT: "disk_fill",
    Layer.NET: "net_unix_listen_abstract",
    Layer.RLIMITS: "thread_bomb",
    Layer.SECCOMP: "door_bpf",
    Layer.UTS: "secret_host_name",
    Layer.WATCH: "memory_many_processes",
}
"""One attack each that gets through when only this layer is missing."""


def breaches(verdicts: list[Verdict]) -> list[tuple[str, list[str]]]:
    return [(each.attack.name, each.escaped + each.leaked + each.wrong) for each in verdicts if not each.contained]


@pytest.mark.timeout(300)
def test_a_cut_of_the_attacks_is_contained_at_tier_2() -> None:
    needs(Tier.T2)
    tier, verdicts = asyncio.run(check_node(Tier.T2, CUT, lambda verdict: None))
    assert tier is Tier.T2
    assert breaches(verdicts) == []


@pytest.mark.timeout(120)
def test_attacks_succeed_where_nothing_stops_them() -> None:
    needs(Tier.T2)
    verdicts = asyncio.run(run_trial(Trial(Tier.NONE), PROVEN, lambda verdict: None))
    assert [verdict.attack.name for verdict in verdicts if verdict.contained] == []


@pytest.mark.timeout(120)
@pytest.mark.parametrize("layer", BY_LAYER)
def test_a_layer_alone_is_missed(layer: Layer) -> None:
    needs(Tier.T2)
    attacks = [attack for attack in ATTACKS if attack.name == BY_LAYER[layer]]
    trial = Trial(Tier.T2, frozenset({layer}))
    assert breaches(asyncio.run(run_trial(trial, attacks, lambda verdict: None)))


@pytest.mark.timeout(180)
def test_random_programs_get_no_wrong_status() -> None:
    needs(Tier.T2)
    figures = asyncio.run(fuzz(runs=160, start=1))
    assert (figures["wrong"], figures["dead"], figures["slot_deaths"]) == (0, 0, 0), figures["examples"]

"""The attacks against a node: one of each class for every change, all of them in the full profile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from cleaner_sandbox import Layer, Tier
from cleaner_sandbox.check import ATTACKS, Attack, AttackClass, AttackVerdict, check_node
from cleaner_sandbox.check.proof import Trial, run_trial
from cleaner_sandbox.protocol.results import RunStatus
from tests.conftest import needs

QUICK = [
    attack for attack in ATTACKS if not {RunStatus.TIMEOUT} >= attack.right and attack.limits.wall_seconds <= 2
]  # those that need no time-out to be judged
ONE_EACH = list({attack.kind: attack for attack in reversed(QUICK)}.values())
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


def breaches(verdicts: list[AttackVerdict]) -> list[tuple[str, list[str]]]:
    return [(each.attack.name, each.escaped + each.leaked + each.wrong) for each in verdicts if not each.contained]


@pytest.mark.parametrize(
    "attacks",
    [
        pytest.param(ONE_EACH, id="one-of-each-class"),
        pytest.param(ATTACKS, id="all", marks=[pytest.mark.slow, pytest.mark.timeout(1_200)]),
    ],
)
def test_attacks_are_contained_at_tier_2(attacks: Sequence[Attack]) -> None:
    needs(Tier.T2)
    tier, verdicts = asyncio.run(check_node(Tier.T2, attacks, lambda verdict: None))
    assert tier is Tier.T2
    assert breaches(verdicts) == []


def test_what_follows_an_attack_is_not_judged_where_there_is_no_shell_to_attack() -> None:
    needs(Tier.T1)
    attacks = [attack for attack in ATTACKS if attack.name == "shell_left_for_the_next"]
    _, (verdict,) = asyncio.run(check_node(Tier.T1, attacks, lambda verdict: None))
    assert verdict.contained
    assert verdict.status is None


def test_no_class_is_without_an_attack_in_the_short_profile() -> None:
    assert {attack.kind for attack in ONE_EACH} == set(AttackClass)


@pytest.mark.timeout(120)
def test_attacks_succeed_where_nothing_stops_them() -> None:
    needs(Tier.T2)
    verdicts = asyncio.run(run_trial(Trial(Tier.NONE), PROVEN, lambda verdict: None))
    assert [verdict.attack.name for verdict in verdicts if verdict.contained] == []


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("layer", BY_LAYER)
def test_a_layer_alone_is_missed(layer: Layer) -> None:
    needs(Tier.T2)
    attacks = [attack for attack in ATTACKS if attack.name == BY_LAYER[layer]]
    trial = Trial(Tier.T2, frozenset({layer}))
    assert breaches(asyncio.run(run_trial(trial, attacks, lambda verdict: None)))

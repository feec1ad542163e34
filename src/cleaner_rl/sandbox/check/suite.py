"""The suite put together: nodes of our own or a given target, and the trials without isolation or without a layer."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from cleaner_rl.sandbox.check.attack import Attack
from cleaner_rl.sandbox.check.lanes import node_lanes
from cleaner_rl.sandbox.check.plants import Plants
from cleaner_rl.sandbox.check.proof import Trial, run_trial
from cleaner_rl.sandbox.check.runner import Lane, Target, Verdict, run_lanes
from cleaner_rl.sandbox.tiers import Layer, Tier

Done = Callable[[Verdict], None]
"""Hears of each verdict as it is found."""

TARGET_LANES = 4

STAND_INS = {
    Layer.IPC: Layer.SECCOMP,
    Layer.LANDLOCK: Layer.MOUNT,
    Layer.PID: Layer.SECCOMP,
    Layer.USER: Layer.UID,
}
"""Layers that let nothing through when they alone are missing, and the one that stops it then."""


async def check_node(tier: Tier | None, attacks: Sequence[Attack], done: Done) -> tuple[Tier, list[Verdict]]:
    """Attack nodes started for this, at a tier or at the highest that works here."""
    lanes_wanted = [2, *[1] * max(2, 2 * (os.cpu_count() or 1))]
    with Plants() as plants:
        async with node_lanes(plants, tier, lanes_wanted) as (found, lanes):
            return found, await run_lanes(lanes, attacks, done)


async def check_target(target: Target, attacks: Sequence[Attack], done: Done) -> list[Verdict]:
    """Attack something that was started elsewhere, such as a node behind a client."""
    with Plants() as plants:
        lanes = [Lane(target, plants) for _ in range(TARGET_LANES)]
        for lane in lanes:
            await lane.start()
        return await run_lanes(lanes, attacks, done)


async def try_without(attacks: Sequence[Attack], done: Done) -> dict[str, list[Verdict]]:
    """The attacks with all isolation off; those that even then only meet the parent's verdict, on the naive runner.

    Neither has sessions, so attacks in sessions aren't tried.
    """
    attacks = [attack for attack in attacks if attack.cells is None]
    none = await run_trial(Trial(Tier.NONE), attacks, done)
    stopped = [verdict.attack for verdict in none if verdict.contained]
    return {"none": none, "naive": await run_trial(Trial(None), stopped, done)}


async def try_layers(attacks: Sequence[Attack], done: Done) -> dict[str, list[Verdict]]:
    """The attacks at tier 2, once for each layer left out alone, and once for each pair that covers for one another."""
    found = {}
    for layers in layer_trials():
        found["+".join(layers)] = await run_trial(Trial(Tier.T2, frozenset(layers)), attacks, done)
    return found


def layer_trials() -> list[tuple[Layer, ...]]:
    """What is left out in each trial."""
    return [*((layer,) for layer in sorted(Tier.T2.layers)), *STAND_INS.items()]

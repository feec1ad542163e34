"""Nodes to attack: how the suite sets them up."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence

from cleaner_rl.sandbox.check.plants import Plants
from cleaner_rl.sandbox.check.runner import Lane
from cleaner_rl.sandbox.config import NodeConfig
from cleaner_rl.sandbox.node import Node
from cleaner_rl.sandbox.preload import BARE, SCIENCE, PreloadSet
from cleaner_rl.sandbox.tiers import Layer, Tier


@contextlib.asynccontextmanager
async def node_lanes(
    plants: Plants,
    tier: Tier | None,
    slots: Sequence[int],
    without: frozenset[Layer] = frozenset(),
    preload: Sequence[PreloadSet] = (BARE, SCIENCE),
) -> AsyncIterator[tuple[Tier, list[Lane]]]:
    """Start nodes with these numbers of slots; gives the tier they run at, and a lane to each."""
    async with contextlib.AsyncExitStack() as stack:
        lanes = []
        least = Tier.T1 if tier is None else tier
        if without:
            least = Tier.NONE
        tier_found = Tier.NONE
        for number in slots:
            config = NodeConfig(
                slots=number,
                preload=tuple(preload),
                tier=tier,
                min_tier=least,
                without=without,
            )
            node = await stack.enter_async_context(Node(config))
            tier_found = node.status.tier
            lane = Lane(node, plants, lambda node=node: _pids(node))  # type: ignore[misc]
            await lane.start()
            lanes.append(lane)
        yield tier_found, lanes


def _pids(node: Node) -> list[int]:
    return [pid for zygote, slots in node.pids.values() for pid in (zygote, *slots)]

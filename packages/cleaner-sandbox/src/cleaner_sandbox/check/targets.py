"""Nodes to attack: how the suite sets them up."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence

from cleaner_sandbox import BARE, SCIENCE, Environment, Layer, Node, NodeConfig, Tier
from cleaner_sandbox.check.honeypots import Honeypots
from cleaner_sandbox.check.runner import AttackRunner


@contextlib.asynccontextmanager
async def node_runners(
    honeypots: Honeypots,
    tier: Tier | None,
    slots: Sequence[int],
    without: frozenset[Layer] = frozenset(),
    environments: Sequence[Environment] = (BARE, SCIENCE),
) -> AsyncIterator[tuple[Tier, list[AttackRunner]]]:
    """Start nodes with these numbers of slots; yields the tier that they run at, and a runner of attacks for each."""
    async with contextlib.AsyncExitStack() as stack:
        runners = []
        least = Tier.T1 if tier is None else tier
        if without:
            least = Tier.NONE
        tier_found = Tier.NONE
        for number in slots:
            config = NodeConfig(
                slots=number,
                environments=tuple(environments),
                tier=tier,
                min_tier=least,
                without=without,
            )
            node = await stack.enter_async_context(Node(config))
            tier_found = node.status.tier
            runner = AttackRunner(node, honeypots, lambda node=node: _pids(node))  # type: ignore[misc]
            await runner.start()
            runners.append(runner)
        yield tier_found, runners


def _pids(node: Node) -> list[int]:
    return [pid for zygote, slots in node.pids.values() for pid in (zygote, *slots)]

"""Runs attacks one after the other against one node, and prints a line of JSON before and after each.

For `proof`, which starts it in a throw-away world and survives what it may not. It ends early, with `SPOILT`, when an
attack has left the node or its surroundings unfit for the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from cleaner_rl.sandbox.check.attacks import ATTACKS
from cleaner_rl.sandbox.check.lanes import node_lanes
from cleaner_rl.sandbox.check.naive import NaiveRunner
from cleaner_rl.sandbox.check.plants import Plants
from cleaner_rl.sandbox.check.runner import Lane
from cleaner_rl.sandbox.preload import BARE
from cleaner_rl.sandbox.tiers import Layer, Tier

SPOILT = 75


async def main(order: dict[str, Any]) -> int:
    """Carry out an order: `tier` (a name, or None for the naive runner), `without`, `slots`, `attacks`."""
    attacks = {attack.name: attack for attack in ATTACKS}
    with Plants() as plants:
        async with _lane(order, plants) as lane:
            for name in order["attacks"]:
                _say(begin=name)
                verdict = await lane.attack(attacks[name])
                _say(
                    name=name,
                    status=verdict.status,
                    seconds=verdict.seconds,
                    escaped=verdict.escaped,
                    leaked=verdict.leaked,
                    wrong=verdict.wrong,
                )
                if any(text.startswith(("the next run", "left", "harmed", "planted")) for text in verdict.escaped):
                    return SPOILT
    return 0


@contextlib.asynccontextmanager
async def _lane(order: dict[str, Any], plants: Plants) -> AsyncIterator[Lane]:
    if order["tier"] is None:
        with tempfile.TemporaryDirectory() as folder:
            lane = Lane(NaiveRunner(Path(folder)), plants)
            await lane.start()
            yield lane
        return
    without = frozenset(map(Layer, order["without"]))
    async with node_lanes(plants, Tier[order["tier"]], [order["slots"]], without, [BARE]) as (_, lanes):
        yield lanes[0]


def _say(**message: Any) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(json.loads(sys.argv[1]))))

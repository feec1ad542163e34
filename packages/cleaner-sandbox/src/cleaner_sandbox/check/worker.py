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

from cleaner_sandbox import BARE, Layer, Tier
from cleaner_sandbox.check.attacks import ATTACKS
from cleaner_sandbox.check.honeypots import Honeypots
from cleaner_sandbox.check.naive import NaiveRunner
from cleaner_sandbox.check.runner import AttackRunner
from cleaner_sandbox.check.targets import node_runners

SPOILT = 75


async def main(order: dict[str, Any]) -> int:
    """Carry out an order: `tier` (a name, or None for the naive runner), `without`, `slots`, `attacks`."""
    attacks = {attack.name: attack for attack in ATTACKS}
    with Honeypots() as honeypots:
        async with _runner(order, honeypots) as runner:
            for name in order["attacks"]:
                _say(begin=name)
                verdict = await runner.attack(attacks[name])
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
async def _runner(order: dict[str, Any], honeypots: Honeypots) -> AsyncIterator[AttackRunner]:
    if order["tier"] is None:
        with tempfile.TemporaryDirectory() as folder:
            runner = AttackRunner(NaiveRunner(Path(folder)), honeypots)
            await runner.start()
            yield runner
        return
    without = frozenset(map(Layer, order["without"]))
    async with node_runners(honeypots, Tier[order["tier"]], [order["slots"]], without, [BARE]) as (_, runners):
        yield runners[0]


def _say(**message: Any) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(json.loads(sys.argv[1]))))

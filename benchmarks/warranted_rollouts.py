"""Counts repairs of rollouts that the rules for logs would refuse: `python -m benchmarks.warranted_rollouts --json`.

In training, hindsight takes every verified correction. On logs a repair has to be warranted too (`logs.warrant`).
The rollouts are demonstrations of the toy environments, which fail and correct themselves, with real results.

    failed      failed turns
    repaired    those that hindsight repairs in training
    warranted   those that it would repair with the rules, where a replay looks at what a program leaves behind
    refused     failed turns that stay with the rules, by reason
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.toy.demonstrations import Demonstration, demonstrations
from benchmarks.toy.questions import TRAIN
from benchmarks.toy.regimes import REGIMES, Regime
from cleaner_rl.logs import Reading, read_record
from cleaner_rl.logs.warrant import Leftovers, Warrant
from cleaner_rl.purify import RepairConfig, hindsight
from cleaner_rl.purify.hindsight import Purified
from cleaner_rl.trajectory import TextSpan


def figures(made: Sequence[Demonstration], regime: Regime) -> dict[str, Any]:
    """Return the counts of some rollouts."""
    count: Counter[str] = Counter(failed=0, repaired=0, warranted=0)
    refused: Counter[str] = Counter()
    for each in made:
        messages = [{"role": one.role, "content": one.content} for one in each.messages(regime)]
        raw = read_record({"messages": messages}, "openai", 0, Reading(call_format=regime.prompt.call_format))
        warranted = hindsight(raw, RepairConfig(), Warrant(raw, RepairConfig(), Leftovers.REPLAYED))
        count["failed"] += sum(turn.failed for turn in raw.turns)
        count["repaired"] += _removed(hindsight(raw, RepairConfig()))
        count["warranted"] += _removed(warranted)
        refused.update(str(left.reason) for left in warranted.left_alone)
    return {**count, "refused": dict(refused)}


def _removed(purified: Purified[TextSpan]) -> int:
    return sum(len(edit.original) - 1 for _, edit in purified.trajectory.edits)


def main() -> None:
    """Print a line per toy environment, or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rollouts", type=int, default=200, help="rollouts of each toy environment")
    arguments = parser.parse_args()
    found = {}
    for name in ("drift", "slips", "mistakes"):
        # Not below /tmp: sandboxed programs have their own.
        with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="cleaner-rl-warranted-") as folder:
            made = asyncio.run(demonstrations(REGIMES[name], arguments.rollouts, 0, TRAIN, Path(folder)))
        found[name] = figures(made, REGIMES[name])
    print(json.dumps(found) if arguments.json else "\n".join(f"{name:9} {counts}" for name, counts in found.items()))


if __name__ == "__main__":
    main()

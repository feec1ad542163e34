"""How often the status of a logged call is told wrongly: `python -m benchmarks.log_judging --json`.

On the labelled results in `tests/logs/data/labelled.jsonl`, by source. Those of Python were made by running
programs, so their label is the exit status; the others are written by hand. Some can't be told by their text, on
purpose: a program that prints a traceback as its last words and ends well, one that exits with a code and says
nothing.

    wrong     told failed or ok, and it is the other
    unsure    not told: such a turn is left as it is
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

from benchmarks.record import save
from cleaner_rl.logs.formats import Reading
from cleaner_rl.logs.judging import judge_call

LABELLED = Path(__file__).parents[1] / "tests/logs/data/labelled.jsonl"
TOLD_ERRORS = ("inspect",)
"""Sources whose results have a field for errors."""


def figures() -> dict[str, dict[str, int]]:
    """Counts by source."""
    counts: dict[str, Counter[str]] = {}
    tools = Reading().tools
    for line in LABELLED.read_text().splitlines():
        example = json.loads(line)
        source, name = example["source"], example["tool"]
        found = judge_call(
            tools.call(name, {}, 0, 0),
            example["text"],
            example.get("fields", {}),
            no_error_means_success=source in TOLD_ERRORS,
        )
        told = None if found.result is None else "failed" if found.result.failed else "ok"
        count = counts.setdefault(source, Counter())
        count["examples"] += 1
        if told is None:
            count["unsure"] += 1
        elif told != example["truth"]:
            count[f"wrongly_{told}"] += 1
    names = ("examples", "unsure", "wrongly_failed", "wrongly_ok")
    return {source: {name: count[name] for name in names} for source, count in sorted(counts.items())}


def main() -> None:
    """Print a line a source, or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--save", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    found = figures()
    total = {name: sum(count[name] for count in found.values()) for name in next(iter(found.values()))}
    every = {**found, "all": total}
    if arguments.save:
        save(arguments.save, every, {})
    if arguments.json:
        print(json.dumps(every))
        return
    print(f"{'source':10}{'examples':>10}{'unsure':>10}{'wrongly failed':>16}{'wrongly ok':>12}")
    for source, count in every.items():
        print(
            f"{source:10}"
            + "".join(f"{count[name]:>{width}}" for name, width in zip(count, (10, 10, 16, 12), strict=True))
        )


if __name__ == "__main__":
    main()

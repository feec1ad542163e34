"""Measures how often the status of a logged call is judged wrongly: `python -m benchmarks.log_judging --json`.

On labelled results, by what the tool does (Python, shell, file edits, SQL, other), in three sets:

- `first`: `tests/logs/data/labelled.jsonl`, of results without their calls but for those that can't be judged
  otherwise. Python's were made by running programs, the others are written by hand.
- `tuned`: `benchmarks/data/log_judging.jsonl`. The rules were written with these in view. Four parts of them had been
  set aside and were scored once before (`EARLIER`); the last one was labelled by somebody who had not seen the rules.
- `heldout`: `benchmarks/data/log_judging_heldout.jsonl`, set aside and scored once, at the commit in `EARLIER`. The
  bugs that it showed are fixed since, so what it gives today is no longer a measurement of unseen results.

A result of the last two sets has its call. Its `label` says where the truth is from: `run`, from the exit code of a
program or the exception of a database that ran; `written`, from whoever wrote the result as a tool documents it.

    failed      labelled as failed, denied, timed out or as a fault
    wrong_ok    failed, and judged ok
    wrong_failed  ok, and judged failed
    unsure      not judged: such a turn is not edited, and left out of the loss
    denied, denied_found  labelled as denied by a person or a policy, and those of them judged so
    wrong_denied  judged as denied, and labelled otherwise
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.record import save
from cleaner_rl.logs.formats import Reading
from cleaner_rl.logs.judging import judge_call
from cleaner_rl.tools import CallKind, Status

ROOT = Path(__file__).parents[1]
SETS = {
    "first": ROOT / "tests/logs/data/labelled.jsonl",
    "tuned": ROOT / "benchmarks/data/log_judging.jsonl",
    "heldout": ROOT / "benchmarks/data/log_judging_heldout.jsonl",
}
TOLD_ERRORS = ("inspect",)
"""Sources whose results have a field for errors."""
EARLIER = (
    {"commit": "bc7add1", "examples": 301, "failed": 166, "unsure": 47, "wrong_ok": 6, "wrong_failed": 0},
    {"commit": "170c3c1", "examples": 433, "failed": 242, "unsure": 67, "wrong_ok": 13, "wrong_failed": 0},
    {"commit": "bea38b8", "examples": 228, "failed": 125, "unsure": 46, "wrong_ok": 4, "wrong_failed": 0},
    {"commit": "e46b869", "examples": 269, "failed": 126, "unsure": 33, "wrong_ok": 3, "wrong_failed": 2},
    {"commit": "807d226", "examples": 320, "failed": 162, "unsure": 60, "wrong_ok": 9, "wrong_failed": 0},
    {"commit": "f8e56f6", "examples": 400, "failed": 227, "unsure": 108, "wrong_ok": 23, "wrong_failed": 1},
    {"commit": "4c19922", "examples": 400, "failed": 217, "unsure": 118, "wrong_ok": 10, "wrong_failed": 3},
)
"""What each set gave when it was scored for the first time, unseen by whoever wrote the rules."""
COUNTS = ("examples", "failed", "unsure", "wrong_ok", "wrong_failed", "denied", "denied_found", "wrong_denied")
Figures = dict[str, dict[str, int]]


def judged(example: dict[str, Any]) -> tuple[CallKind, Status | None]:
    """Return what the call of an example does, and how it ended; None if that is unsure."""
    call = Reading().tools.call(example["tool"], example.get("arguments", {}), 0, 0)
    found = judge_call(
        call,
        example["text"],
        example.get("fields", {}),
        no_error_means_success=example.get("source") in TOLD_ERRORS,
    )
    return call.kind, None if found.result is None else found.result.status


def examples(name: str) -> list[dict[str, Any]]:
    """Return the labelled results of a set."""
    return [json.loads(line) for line in SETS[name].read_text(encoding="utf-8").splitlines()]


def figures(name: str) -> Figures:
    """Return the counts of a set by what the tool does, and of all of it."""
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in (*CallKind, "all")}
    for example in examples(name):
        kind, status = judged(example)
        failed = example["truth"] != "ok"
        denied = example["truth"] == "refused"
        told = {
            "examples": True,
            "failed": failed,
            "unsure": status is None,
            "wrong_ok": failed and status is Status.OK,
            "wrong_failed": not failed and status not in (None, Status.OK),
            "denied": denied,
            "denied_found": denied and status is Status.REFUSED,
            "wrong_denied": not denied and status is Status.REFUSED,
        }
        for each in (kind, "all"):
            counts[each].update(count for count, holds in told.items() if holds)
    return {kind: {each: count[each] for each in COUNTS} for kind, count in counts.items()}


def main() -> None:
    """Print a line per set and kind of tool, or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--save", type=Path, help="also write the figures to this file")
    parser.add_argument("--set", choices=SETS, action="append", help="score this set alone; all of them by default")
    parser.add_argument("--wrong", action="store_true", help="also print the results that are judged wrongly")
    arguments = parser.parse_args()
    found = {name: figures(name) for name in arguments.set or SETS}
    told = {**found, "unseen": EARLIER}
    if arguments.save:
        save(arguments.save, told, {})
    if arguments.json:
        print(json.dumps(told))
        return
    print(f"{'set':9}{'tool':8}" + "".join(f"{name:>14}" for name in COUNTS))
    for name, by_kind in found.items():
        for kind, count in by_kind.items():
            print(f"{name:9}{kind:8}" + "".join(f"{count[each]:>14}" for each in COUNTS))
    for example in (each for name in found if arguments.wrong for each in examples(name)):
        _, status = judged(example)
        if status is not None and (status is Status.OK) != (example["truth"] == "ok"):
            print(f"judged {status}: {json.dumps(example, ensure_ascii=False)}")


if __name__ == "__main__":
    main()

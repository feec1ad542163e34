"""Measures how often `cleaner purify` repairs a logged failure wrongly: `python -m benchmarks.log_edits --json`.

On labelled failures of Python, shell, file-edit, SQL and MCP tools, in four sets of `benchmarks/data/log_edits`:

- `dev`: written by hand, about half of them to be repaired. The rules were written with these in view. A part of them
  (ids that begin with `f` and with `n`) was written and labelled by somebody who had not seen the rules, and scored
  once before it was used to improve them (`EARLIER`).
- `blind`: written and labelled by somebody who had not seen the rules. Its four wrong edits (`EARLIER`), which later
  words of the agent referred to, are what the last rule is about.
- `unseen`: written and labelled by somebody who had not seen the rules, and never used to change them.
- `review`: situations of a review of this project, ten of each with names and numbers of their own, and 21 records on
  which no edit is right.

A record is a log in OpenAI's form with its `failures`. A failure is labelled `repair`, with the call that may stand for
it, or `keep`, with the reason.

    edits    failed calls that a repair removed
    right    labelled `repair`, and replaced by the labelled call
    wrong    any other edit
    missed   labelled `repair`, and not edited
    recall   right ones, of those labelled `repair`
    wrong_upper95  the upper bound of the share of wrong edits, with 95 % confidence (Clopper and Pearson)

Without `--sandbox` nothing runs, as where `cleaner purify` has no sandbox. With it, records of Python alone are
replayed after their repair, and a repair that gives something else is undone. A record that the sandbox can't reproduce
keeps what is warranted without a replay.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.record import save
from cleaner_rl.logs import PurifiedLog, PurifySummary, Reading, detect, purify_log, read_record
from cleaner_rl.logs.purified import purify_to_replay
from cleaner_rl.purify import RepairConfig
from cleaner_rl.replay import checker
from cleaner_rl.trajectory import TextSpan, Trajectory, Turn

DATA = Path(__file__).parent / "data" / "log_edits"
SETS = ("dev", "review", "blind", "unseen")
EARLIER = (
    {
        "ids": "f",
        "commit": "775589a",
        "by_tool": {
            "edit": {"failures": 61, "repairs": 31, "edits": 21, "right": 19, "wrong": 2, "missed": 12},
            "mcp": {"failures": 30, "repairs": 15, "edits": 10, "right": 8, "wrong": 2, "missed": 7},
            "python": {"failures": 61, "repairs": 31, "edits": 22, "right": 20, "wrong": 2, "missed": 11},
            "shell": {"failures": 62, "repairs": 31, "edits": 18, "right": 18, "wrong": 0, "missed": 13},
            "sql": {"failures": 30, "repairs": 15, "edits": 12, "right": 12, "wrong": 0, "missed": 3},
        },
    },
    {
        "ids": "n",
        "commit": "807d226",
        "by_tool": {
            "edit": {"failures": 40, "repairs": 20, "edits": 13, "right": 12, "wrong": 1, "missed": 8},
            "mcp": {"failures": 41, "repairs": 21, "edits": 15, "right": 15, "wrong": 0, "missed": 6},
            "python": {"failures": 41, "repairs": 21, "edits": 9, "right": 8, "wrong": 1, "missed": 13},
            "shell": {"failures": 41, "repairs": 21, "edits": 10, "right": 10, "wrong": 0, "missed": 11},
            "sql": {"failures": 41, "repairs": 21, "edits": 15, "right": 14, "wrong": 1, "missed": 7},
        },
    },
    {
        "ids": "blind",
        "commit": "4c19922",
        "by_tool": {
            "edit": {"failures": 56, "repairs": 26, "edits": 19, "right": 17, "wrong": 2, "missed": 9},
            "mcp": {"failures": 48, "repairs": 21, "edits": 12, "right": 12, "wrong": 0, "missed": 9},
            "python": {"failures": 88, "repairs": 40, "edits": 18, "right": 17, "wrong": 1, "missed": 23},
            "shell": {"failures": 124, "repairs": 57, "edits": 18, "right": 17, "wrong": 1, "missed": 40},
            "sql": {"failures": 58, "repairs": 26, "edits": 8, "right": 8, "wrong": 0, "missed": 18},
        },
    },
)
"""What `blind`, and the parts of `dev` that somebody else wrote, gave before they were used, without a sandbox."""
COUNTS = ("failures", "repairs", "edits", "right", "wrong", "missed")
CONFIDENCE = 0.95
Labels = dict[str, dict[str, Any]]


class Outcome(NamedTuple):
    """What became of one failed call."""

    name: str
    """The record and the call."""
    tool: str
    form: str
    label: str
    """`repair`, `keep`, or `ok` of a call that had not failed."""
    edited: bool
    right: bool
    reason: str
    """Why it was left alone."""
    why: str
    """Why it is labelled so."""


def records(name: str) -> list[dict[str, Any]]:
    """Return the labelled records of a set; none if it isn't there."""
    path = DATA / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


@dataclass(frozen=True, slots=True)
class Purified:
    """A labelled record, as it was read and as it was purified."""

    record: dict[str, Any]
    form: str
    raw: Trajectory[TextSpan]
    cleaned: PurifiedLog[Any]


def purified(some: list[dict[str, Any]], sandbox: bool) -> list[Purified]:
    """Purify records, with a replay in a sandbox or without."""
    read = [_read(record) for record in some]
    repair = purify_to_replay if sandbox else purify_log
    cleaned = [repair(raw, RepairConfig()) for _, raw in read]
    checked = checker()(cleaned, PurifySummary()) if sandbox else cleaned
    return [
        Purified(record, form, raw, PurifiedLog(raw, ()) if done is None else done)
        for record, (form, raw), done in zip(some, read, checked, strict=True)
    ]


def _read(record: dict[str, Any]) -> tuple[str, Trajectory[TextSpan]]:
    log = {key: value for key, value in record.items() if key not in ("failures", "tool")}
    form = detect(log)
    if form is None:
        raise ValueError(f"{record['id']}: no log format reads this record")
    return form, read_record(log, form, 0, Reading())


def outcomes(done: Purified) -> Iterator[Outcome]:
    """Compare each edit of a record with its label."""
    record, form = done.record, done.form
    labels: Labels = {each["call_id"]: each for each in record["failures"]}
    ids = [call["id"] for message in record["messages"] for call in message.get("tool_calls") or ()]
    if sum(len(turn.calls) for turn in done.raw.turns) != len(ids):
        raise ValueError(f"{record['id']}: the calls that were read are not those of the record")
    taken = iter(ids)
    calls = [[next(taken) for _ in turn.calls] for turn in done.raw.turns]
    edited = _edited(done.cleaned.trajectory.turns)
    reasons = _left_alone(done.cleaned)
    for index, (turn, of_turn) in enumerate(zip(done.raw.turns, calls, strict=True)):
        labelled = [labels[each] for each in of_turn if each in labels]
        if index in edited and not labelled:
            yield Outcome(f"{record['id']} turn {index}", record["tool"], form, "ok", True, False, "", "it worked")
        for label in labelled:
            right = index in edited and label["label"] == "repair" and label["correction"] in calls[edited[index]]
            why = "" if index in edited else reasons.get(index) or ("" if turn.failed else "judged unsure or ok")
            name = label["call_id"]
            yield Outcome(name, record["tool"], form, label["label"], index in edited, right, why, label["why"])


def upper_bound(wrong: int, edits: int, confidence: float = CONFIDENCE) -> float:
    """Return the largest share of wrong edits under which so few of them are not too unlikely.

    Examples:
        >>> round(upper_bound(0, 300), 4)
        0.0099
    """
    if wrong >= edits:
        return 1.0
    low, high = 0.0, 1.0
    ways = [math.lgamma(edits + 1) - math.lgamma(k + 1) - math.lgamma(edits - k + 1) for k in range(wrong + 1)]
    for _ in range(60):
        share = (low + high) / 2
        likely, unlikely = math.log(share), math.log1p(-share)
        at_most = math.fsum(math.exp(way + k * likely + (edits - k) * unlikely) for k, way in enumerate(ways))
        low, high = (share, high) if at_most > 1 - confidence else (low, share)
    return high


def counted(found: Iterable[Outcome]) -> dict[str, Any]:
    """Return the counts of some failures."""
    count: Counter[str] = Counter()
    for each in found:
        facts = {
            "failures": each.label != "ok",
            "repairs": each.label == "repair",
            "edits": each.edited,
            "right": each.right,
            "wrong": each.edited and not each.right,
            "missed": each.label == "repair" and not each.edited,
        }
        count.update(name for name, holds in facts.items() if holds)
    recall = round(count["right"] / count["repairs"], 3) if count["repairs"] else None
    bound = round(upper_bound(count["wrong"], count["edits"]), 4)
    return {**{name: count[name] for name in COUNTS}, "recall": recall, "wrong_upper95": bound}


def figures(found: dict[str, list[Outcome]], read: int) -> dict[str, Any]:
    """Return the counts of all sets, and by tool, log format and set."""
    every = [each for some in found.values() for each in some]
    by_tool, by_form = defaultdict(list), defaultdict(list)
    for each in every:
        by_tool[each.tool].append(each)
        by_form[each.form].append(each)
    return {
        "records": read,
        **counted(every),
        "by_tool": {tool: counted(some) for tool, some in sorted(by_tool.items())},
        "by_format": {form: counted(some) for form, some in sorted(by_form.items())},
        "by_set": {
            name: {
                **counted(some),
                "by_tool": {tool: counted(each for each in some if each.tool == tool) for tool in sorted(by_tool)},
            }
            for name, some in found.items()
        },
        "unseen": EARLIER,
    }


def _left_alone(cleaned: PurifiedLog[Any]) -> dict[int, str]:
    """Return why failures were left alone, by turn of the log."""
    reasons: dict[int, str] = {}
    position = 0
    left = {each.turn: each.reason for each in cleaned.left_alone}
    for index, turn in enumerate(cleaned.trajectory.turns):
        if index in left:
            reasons[position] = str(left[index])
        position += 1 if turn.edit is None else len(turn.edit.original)
    return reasons


def _edited(turns: Iterable[Turn[Any]]) -> dict[int, int]:
    """Return the turns of the log that repairs removed, each with the turn that stands for it."""
    removed: dict[int, int] = {}
    position = 0
    for turn in turns:
        length = 1 if turn.edit is None else len(turn.edit.original)
        removed |= dict.fromkeys(range(position, position + length - 1), position + length - 1)
        position += length
    return removed


def main() -> None:
    """Print a table by set and tool, or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--save", type=Path, help="also write the figures to this file")
    parser.add_argument("--set", choices=(*SETS, "all"), default="all", help="score this set alone")
    parser.add_argument("--sandbox", action="store_true", help="replay records of Python in a sandbox")
    parser.add_argument("--failures", action="store_true", help="also print the failures that are wrong or missed")
    arguments = parser.parse_args()
    data = {name: records(name) for name in (SETS if arguments.set == "all" else (arguments.set,))}
    found = {
        name: [each for one in purified(some, arguments.sandbox) for each in outcomes(one)]
        for name, some in data.items()
        if some
    }
    result = figures(found, sum(map(len, data.values())))
    if arguments.save:
        save(arguments.save, result, {"sandbox": arguments.sandbox})
    if arguments.json:
        print(json.dumps(result))
        return
    columns = (*COUNTS, "recall", "wrong_upper95")
    print(f"{'set':8}{'tool':8}" + "".join(f"{name:>14}" for name in columns))
    for name, some in result["by_set"].items():
        for tool, count in (*some["by_tool"].items(), ("all", some)):
            print(f"{name:8}{tool:8}" + "".join(f"{count[each]!s:>14}" for each in columns))
    for each in (each for some in found.values() for each in some if arguments.failures):
        if each.edited and not each.right:
            print(f"wrong   {each.name} (labelled {each.label}: {each.why})")
        elif each.label == "repair" and not each.edited:
            print(f"missed  {each.name} ({each.reason}; labelled {each.label}: {each.why})")


if __name__ == "__main__":
    main()

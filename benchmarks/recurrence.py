"""Measures how much of a real correction other tasks tell: `python -m benchmarks.recurrence FOLDER --json`.

FOLDER holds public logs of agents in `raw` and `converted`, or `raw.tar.xz` and `converted.tar.xz`. They are read and
judged as `cleaner purify --method mask` does it. A correction is a turn whose calls all worked, right after failed
calls of the same tool with a similarity of 0.5 or more; its failed call is the first of them. Each one counts once.

What it changed is found in three ways. `text`: the lexemes that `difflib` finds changed; their place is the lexeme
before and the lexemes replaced. `surprising`: the tokens that SmolLM2 finds more likely, by over 1 nat, with the failed
calls in its context than without them; their place is the token before and the most likely token without.
`surprising_changed`: those of them that are in changed lexemes.

    places, recur     pairs of a task and a place, and the share of them that are also in another task
    agreement         over the votes at those places: the share of other tasks' votes that agree
    some_told, all_told  share of corrections of which another task made one change, or every change
    kappa, prior      mean of (k + 2 prior) / (n + 2) over changes: of n votes of other tasks k agree
    open              share of corrections whose mean is at least 0.5, or that have no change
    voted, open_voted  share of corrections with changes at a place of another task, and `open` among these

A vote is a distinct pair of a task and a change. Records are of one task if they have the same last message before the
first turn, or the same id in the same file, or the same corrected call: so demonstrations, repeated runs, runs of other
models and most rephrased questions are no other tasks. `apart` is `some_told` without the last of these rules.
Shares have intervals of 95 % over tasks, with the votes as they are. `by_eye` has, for each class that a reader gave to
corrections drawn with `--show`, their number and how many of them open, with the votes of their source.

Limits: SmolLM2 did not write these logs; larger models did. Its contexts are cut (`LIMITS` in `recurrence_scores`).
"""

from __future__ import annotations

import argparse
import json
import random
import tarfile
import tempfile
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from benchmarks.record import save
from benchmarks.recurrence_scores import LIMITS, NATS, scorer
from benchmarks.votes import Change, Votes
from cleaner_rl.evaluate.bootstrap import Figure, estimates
from cleaner_rl.logs import LogSettings, log_of, purify
from cleaner_rl.purify.similarity import similarity
from cleaner_rl.purify.similarity.lexemes import LEXEME
from cleaner_rl.trajectory import TextSpan, Trajectory, Turn
from cleaner_rl.trajectory.store import read

Where: TypeAlias = tuple[str, int, int]
"""A turn: its file, line and index."""
FAILED = ("failed", "timeout")
"""Labels of results that are failures."""
SHARES = dict.fromkeys(("open", "some_told", "all_told"), "corrections")
SHARES |= {"recur": "places", "kappa": "changes", "voted": "changed", "open_voted": "voted"}
"""Figures with what each is a share of."""
EYE = Path(__file__).parent / "data" / "recurrence_eye.json"
"""Corrections, each with the class that one reader gave it: what would have told it beforehand.

`import`: a name to import or to define; `language`: a rule of a language or of a command; `harness`: what a tool wants;
`schema`: a name in a database, which the prompts don't have; `environment`: a path or a state; `task`: the task's own
logic; `other aim`: nothing, because the correction does something else than the failed call was for.
"""


class Correction(NamedTuple):
    """A working turn, the failed ones right before it, and the history before these."""

    where: Where
    source: str
    keys: tuple[tuple[str, ...], ...]
    """What other records of its task share with it; the last is the corrected call."""
    before: Trajectory[TextSpan]
    failed: Sequence[Turn[TextSpan]]
    turn: Turn[TextSpan]


@dataclass(slots=True)
class Logs:
    """Holds what was read."""

    counts: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """Calls and failed calls by source."""
    corrections: dict[Hashable, Correction] = field(default_factory=dict)
    failed: set[Where] = field(default_factory=set)


def recurrence(seen: Sequence[tuple[int, Sequence[Change]]]) -> dict[str, Any]:
    """Return the figures of corrections, each with its task and what it changed."""
    votes = Votes(seen)
    by_task: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    places = {(task, each.place): votes.others(task, each)[0] > 0 for task, some in seen for each in some}
    rows: list[tuple[int, dict[str, float]]] = [(task, {"places": 1, "recur": n}) for (task, _), n in places.items()]
    for task, changes in seen:
        told = [votes.others(task, each) for each in changes]
        row = {
            "corrections": 1,
            "changed": bool(told),
            "changes": len(told),
            "kappa": sum(votes.kappa(task, each) for each in changes),
            "open": votes.opens(task, changes),
            "some_told": any(k for _, k in told),
            "all_told": bool(told) and all(k for _, k in told),
            "voted": any(n for n, _ in told),
            "open_voted": any(n for n, _ in told) and votes.opens(task, changes),
        }
        rows.append((task, row))
    for task, row in rows:
        for name, value in row.items():
            by_task[task][name] += value
    every = list(by_task.values())
    figures = [Figure([e[a] for e in every], [e[b] for e in every], share=True) for a, b in SHARES.items()]
    shares = {
        name: [None if value is None else round(value, 3) for value in (each.value, each.low, each.high)]
        for name, each in zip(SHARES, estimates(figures), strict=True)
    }
    whole = {name: int(sum(e[name] for e in every)) for name in ("corrections", "changed", "changes", "places")}
    agreed = {"agreement": votes.agreement and round(votes.agreement, 3), "prior": round(votes.prior, 3)}
    return {"tasks": len(every), **whole, **agreed, **shares}


def text_changes(failed: str, now: str) -> list[tuple[Change, tuple[int, int]]]:
    """Return what changed in lexemes, with its characters in the correction; of a deletion, those of what follows."""
    old, new = ([each for each in LEXEME.finditer(code) if not each[0].startswith("#")] for code in (failed, now))
    before, after = [each[0] for each in old], [each[0] for each in new]
    found = []
    for kind, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind != "equal":
            change = Change((before[a - 1] if a else None, tuple(before[a:b])), tuple(after[c:d]))
            ends = [each.span() for each in new[c : max(d, c + 1)]] or [(len(now), len(now))]
            found.append((change, (ends[0][0], ends[-1][1])))
    return found


def tasks_of(keys: Sequence[Iterable[Hashable]]) -> list[int]:
    """Return a number for each item: the same for items that share a key, or share one with the same other item."""
    tasks = list(range(len(keys)))
    owner: dict[Hashable, int] = {}
    for item, some in enumerate(keys):
        for key in some:
            old, new = sorted((tasks[item], tasks[owner.setdefault(key, item)]), reverse=True)
            if old != new:
                tasks = [new if each == old else each for each in tasks]
    return tasks


def read_logs(folder: Path) -> Logs:
    """Return the corrections of public logs, and counts by source. What was converted is not read raw, too."""
    converted = sorted((folder / "converted").glob("*"))
    names = tuple(each.name for each in converted)
    raw = sorted(each for each in (folder / "raw").glob("*") if not each.name.startswith(names))
    found = Logs()
    with tempfile.TemporaryDirectory() as out:
        purify([*converted, *raw], out, LogSettings(repair=None))
        for trajectory in read(f"{out}/store"):
            add(found, trajectory, folder)
    return found


def add(found: Logs, trajectory: Trajectory[Any], folder: Path) -> None:
    """Add a trajectory's calls and corrections."""
    log, turns = log_of(trajectory), trajectory.turns
    file, line = str(Path(log["source"]["file"]).relative_to(folder)), log["source"]["line"] or 1
    task, origin = trajectory.prompt.text.rpartition("\nuser: ")[2], file.split("/")[1]
    for index, turn in enumerate(turns):
        for call in turn.calls:
            found.counts[f"{origin} {call.kind}"]["calls"] += 1
        for call, result in zip(turn.calls, turn.results, strict=False):  # a call that nobody can judge has no result
            found.counts[f"{origin} {call.kind}"]["failed"] += result.failed
        if turn.failed:
            found.failed.add((file, line, index))
        first = index
        while first and first - 1 not in log.get("spoken", ()) and corrects(turn, turns[first - 1]):
            first -= 1
        if first < index and turn.verified:
            program = tuple(each for each in LEXEME.findall(turn.code) if not each.startswith("#"))
            keys = ("text", task), ("id", file, trajectory.key.task), ("call", *program)
            before, source = Trajectory(trajectory.prompt, turns[:first]), f"{origin} {turn.calls[0].kind}"
            one = Correction((file, line, index), source, keys, before, turns[first:index], turn)
            found.corrections.setdefault((task, turns[first].code, turn.code), one)


def corrects(turn: Turn[Any], failed: Turn[Any]) -> bool:
    """Return whether a turn does what a failed one before it tried, by tool and similarity."""
    same = {each.name for each in turn.calls} == {each.name for each in failed.calls}
    return failed.failed and same and similarity(failed.code, turn.code).value >= 0.5


def measure(logs: Logs, scored: int, seed: int, labels: Path) -> dict[str, Any]:
    """Return all figures."""
    some = sorted(logs.corrections.values(), key=lambda each: each.where)
    tasks = dict(zip((each.where for each in some), tasks_of([each.keys for each in some]), strict=True))
    apart = dict(zip(tasks, tasks_of([each.keys[:-1] for each in some]), strict=True))
    changed = {each.where: text_changes(each.failed[0].code, each.turn.code) for each in some}
    ways: dict[str, dict[Where, list[Change]]] = {"text": {w: [c for c, _ in each] for w, each in changed.items()}}
    sources = {name: [each for each in some if each.source == name] for name in sorted(logs.counts)}
    if scored:
        score, ways["surprising"], ways["surprising_changed"] = scorer(), {}, {}
        for name, every in sources.items():
            for each in random.Random(f"{seed} {name}").sample(every, min(scored, len(every))):
                tokens = [(Change(*token), start, end) for token, start, end in score(*each[-3:])]
                ways["surprising"][each.where] = [token for token, _, _ in tokens]
                spans = [span for _, span in changed[each.where]]
                inside = [token for token, start, end in tokens if any(start < b and a < end for a, b in spans)]
                ways["surprising_changed"][each.where] = inside

    def figures(some: Sequence[Correction]) -> dict[str, Any]:
        seen = {name: [(tasks[e.where], way[e.where]) for e in some if e.where in way] for name, way in ways.items()}
        without = recurrence([(apart[each.where], ways["text"][each.where]) for each in some])["some_told"]
        return {**{name: recurrence(each) for name, each in seen.items()}, "apart": without}

    return {
        "sources": {name: {**logs.counts[name], **figures(each)} for name, each in sources.items() if each},
        "pooled": {**sum(logs.counts.values(), Counter()), **figures(some)},
        "labels": labelled(logs, labels) if labels.exists() else None,
        "by_eye": by_eye({each.where: (each.source, tasks[each.where]) for each in some}, ways),
    }


def labelled(logs: Logs, labels: Path) -> dict[str, int]:
    """Count the results that a reader labelled as failures, and what the log has after them."""
    corrected = {
        (*each.where[:2], each.where[2] - back)
        for each in logs.corrections.values()
        for back in range(1, len(each.failed) + 1)
    }
    found: Counter[str] = Counter()
    for label in map(json.loads, labels.read_text(encoding="utf-8").splitlines()):
        if label["what"] == "result" and label["label"] in FAILED:
            where = (label["source"], label["record"] or 1, label["turn"])
            found.update(failed=1, judged_failed=where in logs.failed, corrected=where in corrected)
    return dict(found)


def by_eye(
    known: Mapping[Where, tuple[str, int]], ways: Mapping[str, Mapping[Where, Sequence[Change]]]
) -> dict[str, dict[str, int]]:
    """Return how many corrections were read as of each class, and for how many of them the gate opens."""
    table: dict[str, Counter[str]] = defaultdict(Counter)
    for way, changes in ways.items():
        seen: dict[str, list[tuple[int, Sequence[Change]]]] = defaultdict(list)
        for where, some in changes.items():
            seen[known[where][0]].append((known[where][1], some))
        votes = {source: Votes(each) for source, each in seen.items()}
        for file, line, turn, name in json.loads(EYE.read_text(encoding="utf-8")):
            where = (file, line, turn)
            if where in changes:
                source, task = known[where]
                table[name].update({way: 1, f"{way}_open": votes[source].opens(task, changes[where])})
    return {name: dict(count) for name, count in sorted(table.items())}


def unpacked(place: Path, into: str) -> Path:
    """Return the folder that has the logs, unpacked; the program ends with a reason if there are none."""
    if (place / "converted").is_dir():
        return place
    archives = [place / "raw.tar.xz", place / "converted.tar.xz"]
    if not all(each.is_file() for each in archives):
        raise SystemExit(f"{place} has neither the folders raw and converted nor raw.tar.xz and converted.tar.xz")
    for each in archives:
        with tarfile.open(each) as archive:
            archive.extractall(into, filter="data")
    return Path(into)


def main() -> None:
    """Print one JSON object, or some corrections to read."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="the logs, which are no part of this project")
    parser.add_argument("--scored", type=int, default=0, help="corrections per source that SmolLM2 scores (default: 0)")
    parser.add_argument("--seed", type=int, default=0, help="of the corrections that are drawn (default: 0)")
    parser.add_argument("--show", type=int, metavar="N", help="print N random corrections instead")
    parser.add_argument("--json", action="store_true", help="print the object in one line")
    parser.add_argument("--save", type=Path, help="also write the figures to this file, with commit and machine")
    arguments = parser.parse_args()
    if arguments.folder is None:
        raise SystemExit("there are no logs to measure; name the folder that has them")
    with tempfile.TemporaryDirectory() as into:
        logs = read_logs(unpacked(arguments.folder, into))
    if arguments.show:
        every = sorted(logs.corrections.values(), key=lambda each: each.where)
        for each in random.Random(arguments.seed).sample(every, min(arguments.show, len(every))):
            error = each.failed[0].observation
            calls = {"failed": each.failed[0].code, "error": error and error.text, "now": each.turn.code}
            print(json.dumps(each.where), each.keys[0][1], *(f"--- {name}\n{code}" for name, code in calls.items()))
        return
    found = measure(logs, arguments.scored, arguments.seed, arguments.folder / "labels.jsonl")
    if arguments.save:
        save(arguments.save, found, {"scored": arguments.scored, "seed": arguments.seed, "nats": NATS, **LIMITS})
    print(json.dumps(found) if arguments.json else json.dumps(found, indent=2))


if __name__ == "__main__":
    main()

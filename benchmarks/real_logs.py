"""Measures judging and repairing on logs of real agents: `python -m benchmarks.real_logs /path/to/real-logs --json`.

The folder holds `raw/SOURCE/...` (files as they were published), `converted/SOURCE/...` (files of sources that could
not be read, turned into messages) and `labels.jsonl`, by one reader. They are not part of the project. A source is read
from `raw`; one of which no file there is recognised is read from `converted`. A call counts once per source, however
often the same call with the same result is there.

    recognised            files that are read as logs, of those in `raw`
    results               calls
    no_result             those that the log has no result of
    unsure, judged_failed those with a result that nobody can tell the end of, and those judged failed
    failures_labelled     results labelled as failed, denied or timed out
    seen                  those of them judged so
    failed_judged_ok, failed_unsure    those of them judged ok, or unsure
    ok_labelled, ok_judged_failed      results labelled ok, and those of them judged failed
    unmatched             labelled results that are not found in what was read
    failed, repaired      turns with a failed call, and those of them that an edit stands for
    edits                 edits
    wrong, doubtful, right, unlabelled    those of them labelled so, or not labelled at all
    no_effect, no_effect_repaired      edits that a tool rejected and accepted in the next turn; those that are repaired
    rows, rows_without_target, masked  SFT rows, those without a message in the loss, messages of the model left out

The reader drew results evenly from those judged failed, ok and unsure by the tool of then, whose figures are kept in
`results/real_logs_before.json`. `weighted` counts each labelled result as many times as there are results like it: it
is the share among all failures, where `seen` is that among the labelled ones.

Shares have exact intervals of 95 % (Clopper and Pearson). Sources of `data/real_logs_set_aside.txt` were named before
any log was opened, and no rule was written on them; `set_aside` has their sum, `tuned` that of the others.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.log_edits import upper_bound
from benchmarks.record import save
from cleaner_rl.logs import LogError, LogSettings, SftKind, purify
from cleaner_rl.tools import Status, ToolCall
from cleaner_rl.trajectory import Turn, sampled_turns
from cleaner_rl.trajectory.store import read

BEFORE = Path(__file__).parent / "results" / "real_logs_before.json"
SET_ASIDE = Path(__file__).parent / "data" / "real_logs_set_aside.txt"
CONVERTED = {"mint-bench": "mint"}
"""Names of folders in `converted` that differ from those in `raw`."""
LABELLED_FAILED = {"failed", "denied", "timeout"}
COUNTS = (
    *(
        "files",
        "recognised",
        "results",
        "no_result",
        "unsure",
        "judged_failed",
        "failures_labelled",
        "seen",
        "failed_judged_ok",
    ),
    *("failed_unsure", "ok_labelled", "ok_judged_failed", "unmatched", "failed", "repaired", "edits", "wrong"),
    *("doubtful", "right", "unlabelled", "no_effect", "no_effect_repaired", "rows", "rows_without_target", "masked"),
)
SHARES = {
    "seen": "failures_labelled",
    "failed_judged_ok": "failures_labelled",
    "ok_judged_failed": "ok_labelled",
    "repaired": "failed",
    "wrong": "edits",
    "no_effect_repaired": "no_effect",
}
WEIGHTED = {"seen", "failed_judged_ok", "ok_judged_failed"}
REJECTED = re.compile(
    r"Your proposed edit has introduced new syntax error|No replacement was performed|"
    r"<tool_use_error>(?:String to replace not found|File has not been read)"
)
"""What editors say that changed nothing."""
_TAGS = re.compile(r"</?tool_response>|\s+")
Figures = dict[str, int]


@dataclass(frozen=True, slots=True)
class Call:
    """A call as it was read."""

    place: int
    """Its place among the calls of its turn."""
    code: str
    observation: str
    status: Status | None
    answered: bool


@dataclass(slots=True)
class Source:
    """What was read of one source."""

    files: int = 0
    recognised: int = 0
    calls: list[Call] = field(default_factory=list)
    failed: int = 0
    repaired: int = 0
    edits: list[Sequence[Turn[Any]]] = field(default_factory=list)
    """The turns that each edit stands for, the correction last."""
    rejected: dict[tuple[str, str], bool] = field(default_factory=dict)
    """Rejected edits with an accepted next one, and whether they are repaired."""
    masks: list[tuple[int, int]] = field(default_factory=list)
    """Of each row, the model's messages in the loss and those left out."""


def squeezed(text: object) -> str:
    """Return a text without blanks and without the tags around results, to compare by."""
    return _TAGS.sub("", str(text))


def read_source(paths: Sequence[Path]) -> Source:
    """Purify the files of a source, and return what became of them."""
    found = Source(len(paths))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        try:
            result = purify(paths, out, LogSettings(sft=SftKind.JSONL))
        except LogError:
            found.recognised += sum(_add(found, [path]) for path in paths) if len(paths) > 1 else 0
            return found
        found.recognised = len(result.files)
        for trajectory in read(out / "store"):
            _look(found, trajectory)
        for file in sorted((out / "sft").rglob("*.jsonl")):
            for line in file.read_text(encoding="utf-8").splitlines():
                row = json.loads(line)
                said = [
                    mask
                    for mask, message in zip(row["loss_mask"], row["messages"], strict=True)
                    if message["role"] == "assistant"
                ]
                found.masks.append((sum(said), len(said) - sum(said)))
    return found


def _add(found: Source, paths: Sequence[Path]) -> bool:
    one = read_source(paths)
    found.calls += one.calls
    found.failed += one.failed
    found.repaired += one.repaired
    found.edits += one.edits
    found.rejected |= one.rejected
    found.masks += one.masks
    return bool(one.recognised)


def _look(found: Source, trajectory: Any) -> None:
    sampled = [each.turn for each in sampled_turns(trajectory)]
    for turn in sampled:
        observation = "" if turn.observation is None else turn.observation.text
        answered = turn.observation is not None
        for place, call in enumerate(turn.calls):
            status = turn.results[place].status if place < len(turn.results) else None
            found.calls.append(Call(place, squeezed(call.code), squeezed(observation), status, answered))
    found.failed += sum(turn.failed for turn in sampled)
    edited: set[int] = set()
    for turn in trajectory.turns:
        if turn.edit is not None:
            found.edits.append(turn.edit.original)
            edited |= {id(each) for each in turn.edit.original}
            found.repaired += sum(each.failed for each in turn.edit.original)
    for turn, following in pairwise(sampled):
        text = "" if turn.observation is None else turn.observation.text
        if (
            len(turn.calls) == len(following.calls) == 1
            and _same_tool(turn.calls[0], following.calls[0])
            and (REJECTED.search(text) and following.verified)
        ):
            found.rejected[squeezed(turn.code), squeezed(following.code)] = id(turn) in edited


def _same_tool(one: ToolCall, other: ToolCall) -> bool:
    """Return whether two calls are of one tool, and of one command of it where it has several."""
    return one.name == other.name and one.arguments.get("command") == other.arguments.get("command")


def counted(
    source: Source, labels: Sequence[Mapping[str, Any]], before: Mapping[str, Any] | None
) -> tuple[Figures, Counter[str]]:
    """Return the counts of a source, and those of labelled results by how many each stands for."""
    count = Counter[str](files=source.files, recognised=source.recognised)
    calls = list({(each.place, each.code, each.observation): each for each in source.calls}.values())
    count["results"] = len(calls)
    count["no_result"] = sum(not each.answered for each in calls)
    count["unsure"] = sum(each.answered and each.status is None for each in calls)
    count["judged_failed"] = sum(each.status not in (None, Status.OK) for each in calls)
    count["failed"], count["repaired"] = source.failed, source.repaired
    weight = {} if before is None else weights(before, labels)
    weighted = Counter[str]()
    for label in labels:
        if label["what"] == "result" and label["label"] in (*LABELLED_FAILED, "ok"):
            judged = list(_judged(label, calls))
            count.update(judged)
            weighted.update(dict.fromkeys(judged, weight.get(_verdict(label), 0.0)))
    edits = {tuple(squeezed(turn.code) for turn in edit): edit for edit in source.edits}
    known = {
        tuple(squeezed("\n".join(call["code"] for call in turn["calls"])) for turn in label["original"]): label["label"]
        for label in labels
        if label["what"] == "edit"
    }
    count["edits"] = len(edits)
    count.update(known.get(key, "unlabelled") for key in edits)
    count["no_effect"] = len(source.rejected)
    count["no_effect_repaired"] = sum(source.rejected.values())
    count["rows"] = len(source.masks)
    count["rows_without_target"] = sum(not trained for trained, _ in source.masks)
    count["masked"] = sum(masked for _, masked in source.masks)
    return {name: count[name] for name in COUNTS}, weighted


def _judged(label: Mapping[str, Any], calls: Sequence[Call]) -> Iterator[str]:
    failed = label["label"] in LABELLED_FAILED
    yield "failures_labelled" if failed else "ok_labelled"
    call = found_call(label, calls)
    if call is None:
        yield "unmatched"
    elif call.status is None:
        yield "failed_unsure" if failed else "ok_unsure"
    elif failed:
        yield "failed_judged_ok" if call.status is Status.OK else "seen"
    elif call.status is not Status.OK:
        yield "ok_judged_failed"


def weights(before: Mapping[str, Any], labels: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return for each verdict of the tool of then how many results of a source a label stands for."""
    there = {
        "unsure": before["unsure"] + before["no_result"],
        "failed": before["judged_failed"],
        "ok": before["results"] - before["unsure"] - before["no_result"] - before["judged_failed"],
    }
    drawn = Counter(_verdict(label) for label in labels if label["what"] == "result")
    return {verdict: there[verdict] / count for verdict, count in drawn.items()}


def _verdict(label: Mapping[str, Any]) -> str:
    verdict = label["tool_verdict"]
    return verdict if verdict in ("ok", "unsure") else "failed"


def found_call(label: Mapping[str, Any], calls: Sequence[Call]) -> Call | None:
    """Return the call that a label is of; None if it isn't among those that were read."""
    code, observation = squeezed(label["code"]), squeezed(label["observation"])
    there = [each for each in calls if _same(observation, each.observation)]
    exact = [each for each in there if each.code == code]
    near = [each for each in there if code and each.code and (code in each.code or each.code in code)]
    for found in (exact, near, there):
        if found:
            return next((each for each in found if each.place == label["call"]), found[0])
    return None


def _same(one: str, other: str) -> bool:
    return one == other or (min(len(one), len(other)) > 20 and (one in other or other in one))


def interval(part: int, of: int) -> list[float]:
    """Return an exact interval of 95 % for a share, in percent."""
    if not of:
        return []
    return [round(100 * (1 - upper_bound(of - part, of, 0.975)), 1), round(100 * upper_bound(part, of, 0.975), 1)]


def with_shares(figures: Figures, weighted: Counter[str]) -> dict[str, Any]:
    """Return counts, with a share and its interval for each that has one, and the weighted share."""
    shares = {
        name: {"percent": round(100 * figures[name] / figures[of], 1), "interval": interval(figures[name], figures[of])}
        for name, of in SHARES.items()
        if figures[of]
    }
    for name in WEIGHTED & shares.keys():
        shares[name]["weighted"] = round(100 * weighted[name] / (weighted[SHARES[name]] or 1), 1)
    return {**figures, "shares": shares}


def measure(folder: Path) -> dict[str, Any]:
    """Return the figures of all sources in a folder, and their sums."""
    labels = [json.loads(line) for line in (folder / "labels.jsonl").read_text(encoding="utf-8").splitlines()]
    aside = [line for line in SET_ASIDE.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    before = json.loads(BEFORE.read_text(encoding="utf-8"))["figures"]["sources"] if BEFORE.exists() else {}
    sources: dict[str, Any] = {}
    sums = {each: (Counter[str](), Counter[str]()) for each in ("all", "tuned", "set_aside")}
    for place in sorted((folder / "raw").iterdir()):
        for part, is_aside in (("", False), (" (set aside)", True)):
            files = [each for each in _files(place) if _is_below(each, folder, aside) is is_aside]
            if not files:
                continue
            source = read_source(files)
            name = CONVERTED.get(place.name, place.name)
            if not source.recognised and (folder / "converted" / name).is_dir():
                others = _files(folder / "converted" / name)
                source = read_source([each for each in others if _is_below(each, folder, aside) is is_aside])
                source.files, source.recognised = len(files), 0
            below = (f"raw/{place.name}/", f"converted/{name}/")
            own = [
                each
                for each in labels
                if each["source"].startswith(below) and each["source"].startswith(tuple(aside)) is is_aside
            ]
            figures, weighted = counted(source, own, before.get(f"{place.name}{part}"))
            sources[f"{place.name}{part}"] = with_shares(figures, weighted)
            for total in ("all", "set_aside" if is_aside else "tuned"):
                sums[total][0].update(figures)
                sums[total][1].update(weighted)
    totals = {name: with_shares({each: count[each] for each in COUNTS}, sum_) for name, (count, sum_) in sums.items()}
    return {
        "sources": sources,
        **totals["all"],
        "tuned": totals["tuned"],
        "set_aside": totals["set_aside"],
    }


def _files(folder: Path) -> list[Path]:
    return sorted(each for each in folder.rglob("*") if each.is_file())


def _is_below(path: Path, folder: Path, places: Sequence[str]) -> bool:
    return path.relative_to(folder).as_posix().startswith(tuple(places))


def main() -> None:
    """Print one line per source, or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder with raw/, converted/ and labels.jsonl")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--save", type=Path, help="also write the figures to this file, with commit and machine")
    arguments = parser.parse_args()
    found = measure(arguments.folder)
    if arguments.save:
        save(arguments.save, found, {})
    if arguments.json:
        print(json.dumps(found))
        return
    for name, figures in (*found["sources"].items(), ("all", found), ("tuned", found["tuned"])):
        print(name, *(f"{each}={figures[each]}" for each in COUNTS if figures[each]), sep="  ")
    print(json.dumps({"all": found["shares"], "tuned": found["tuned"]["shares"]}))


if __name__ == "__main__":
    main()

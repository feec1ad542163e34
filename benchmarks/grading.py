"""How often graders are wrong about answers that were labelled by hand: `python -m benchmarks.grading --json`.

The cases are in `benchmarks/data/grading/`, one JSON object per line: `id`, `kind` (the grader), `truth` (or `cases`
and `entry`), `text`, `label` (or `right`), sometimes `question` or `letters`. A `text` of `[[part, times], …]` is
written out.

    first_review.jsonl   hand-labelled cases of the first review, hard on purpose
    own.jsonl            more of the same kinds, and thinking, bombs and hedges, by the author of the rules
    blind.jsonl          by somebody who had not seen the rules, frozen before they were final
    disputed.jsonl       labels that we dispute, by `id` and with the reason; they count as neither right nor wrong

On the first run over `blind.jsonl`, before anything was changed because of it, 1 of 240 was a false right, 11 were
false wrongs and 1 was a fault. After that run, large powers stay unevaluated and `i` is the imaginary unit (both also
concern cases of the other files), and one label was disputed; so its figures today are no longer blind.

Mathematics goes through the verifier's processes, programs through a real sandbox of this machine.

    false_right   labelled wrong, graded right        false_wrong   labelled right, graded wrong
    faults        not graded at all
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.record import save
from cleaner_rl.rollout import standard_graders
from cleaner_rl.tasks import Case, Cases, Grade, MathPool, Message, Outcome, Task, grade
from cleaner_rl.tasks.grading import call_case
from cleaner_sandbox import open_sandbox

FOLDER = Path(__file__).parent / "data/grading"
FILES = ("first_review", "own", "blind")
DISPUTED = FOLDER / "disputed.jsonl"
SECONDS = 2.0
"""CPU time of the verifier for one answer, less than the default: some of these answers are made to use all of it."""
AT_ONCE = 8
COUNTS = ("pairs", "false_right", "false_wrong", "faults")


@dataclass(frozen=True, slots=True)
class LabelledAnswer:
    """One answer with the grade that it should get."""

    id: str
    task: Task
    text: str
    label: str


def load(files: Iterable[str] = FILES, folder: Path = FOLDER) -> list[LabelledAnswer]:
    """Return the cases of these files."""
    lines = [line for name in files for line in (folder / f"{name}.jsonl").read_text("utf-8").splitlines()]
    return [_case(json.loads(line)) for line in lines]


def _case(values: dict[str, Any]) -> LabelledAnswer:
    text = values["text"]
    written = text if isinstance(text, str) else "".join(part * times for part, times in text)
    label = values["label"] if "label" in values else "right" if values["right"] else "wrong"
    grader = {"program": "code"}.get(values["kind"], values["kind"])
    truth = values["truth"] if "truth" in values else _cases(values["cases"], values["entry"]).dumps()
    extra = {"letters": values["letters"]} if "letters" in values else {}
    question = (Message("user", values.get("question", "?")),)
    return LabelledAnswer(values["id"], Task(values["id"], question, grader, truth, extra=extra), written, label)


def _cases(cases: list[list[Any]], entry: str | None) -> Cases:
    if entry is None:
        return Cases(tuple(Case(given, wanted) for given, wanted in cases))
    return Cases(tuple(call_case(call["args"], call["kwargs"], wanted) for call, wanted in cases), entry)


def disputed(path: Path = DISPUTED) -> dict[str, str]:
    """Return why we dispute labels, by the cases' ids."""
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return {row["id"]: row["reason"] for row in rows}


async def grade_all(cases: list[LabelledAnswer]) -> list[Grade]:
    """Grade each case with the graders that rollouts use."""
    limit = asyncio.Semaphore(AT_ONCE)
    async with open_sandbox(slots=2) as sandbox:
        with MathPool(seconds=SECONDS) as pool:
            graders = standard_graders(sandbox, pool)

            async def one(case: LabelledAnswer) -> Grade:
                async with limit:
                    return await grade(case.task, case.text, graders)

            return await asyncio.gather(*map(one, cases))


def difference(case: LabelledAnswer, found: Grade) -> str | None:
    """Return how a grade differs from its label; None if it doesn't."""
    if found.outcome is Outcome.FAULT:
        return "faults"
    if found.outcome.value == case.label:
        return None
    return "false_right" if found.outcome is Outcome.RIGHT else "false_wrong"


def figures(cases: list[LabelledAnswer], grades: list[Grade], disputes: dict[str, str]) -> dict[str, Any]:
    """Return the counts, in all and by kind. A disputed label is no pair, unless its case is a fault."""
    total: Counter[str] = Counter()
    kinds: dict[str, Counter[str]] = {}
    for case, found in zip(cases, grades, strict=True):
        what = difference(case, found)
        if case.id in disputes and what != "faults":
            continue
        for count in (total, kinds.setdefault(case.task.grader, Counter())):
            count["pairs"] += 1
            if what:
                count[what] += 1
    labels = {case.id: case.label for case in cases}
    return {
        **{name: total[name] for name in COUNTS},
        "by_kind": {kind: {name: count[name] for name in COUNTS} for kind, count in sorted(kinds.items())},
        "disputed": [
            {"id": each, "label": labels[each], "reason": reason} for each, reason in disputes.items() if each in labels
        ],
    }


def main() -> None:
    """Print what differs from its label and a line per kind, or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--save", type=Path, help="also write the figures to this file")
    parser.add_argument("--files", default=",".join(FILES), help="names of the case files, separated by commas")
    arguments = parser.parse_args()
    cases = load(arguments.files.split(","))
    disputes = disputed()
    grades = asyncio.run(grade_all(cases))
    found = figures(cases, grades, disputes)
    if arguments.save:
        save(arguments.save, found, {"seconds": SECONDS, "files": arguments.files})
    if arguments.json:
        print(json.dumps(found))
        return
    for case, each in zip(cases, grades, strict=True):
        if (what := difference(case, each)) and case.id not in disputes:
            print(f"{what:12} {case.id:18} {case.task.truth[:40]!r} {case.text[:90]!r}: {each.reason}")
    print(f"{'kind':10}" + "".join(f"{name:>14}" for name in COUNTS))
    for kind, counts in [*found["by_kind"].items(), ("all", found)]:
        print(f"{kind:10}" + "".join(f"{counts[name]:>14}" for name in COUNTS))
    print(f"{len(found['disputed'])} labels are disputed")


if __name__ == "__main__":
    main()

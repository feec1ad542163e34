"""The tables of a report, as rows of text; how they are set is the writer's business."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cleaner_rl.evaluate.paired import Difference
from cleaner_rl.evaluate.report import words
from cleaner_rl.evaluate.results import Evaluation, RecoveryResult, Repair, RunScore
from cleaner_rl.trajectory import StopReason

PROBLEMS = "problems"
DIFFERENCE = ("difference, these problems", "problems at large")


@dataclass(frozen=True, slots=True)
class Table:
    """A head and rows; the first column is words, the others are figures."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def scores(evaluation: Evaluation) -> Table:
    """pass@1 with repair off and on, side by side, with bounds where something was left out."""
    repairs = [repair for repair in Repair if any(repair in each.runs for each in evaluation.sets)]
    head = ["set", PROBLEMS, "samples"]
    rows = [[each.name, words.problems(each), str(each.samples)] for each in evaluation.sets]
    for repair in repairs:
        runs = [each.runs.get(repair) for each in evaluation.sets]
        columns = {f"pass@1, {words.REPAIR[repair]}": [_figure(run, "pass@1") for run in runs]}
        if any(run is not None and run.bounds is not None for run in runs):
            columns[f"bounds, {words.REPAIR[repair]}"] = [words.bounds(run) for run in runs]
        head += columns
        for row, *cells in zip(rows, *columns.values(), strict=True):
            row += cells
    return Table(head, rows)


def differences(found: Mapping[str, Difference]) -> Table:
    """Differences of pass@1 or of another share, one a row."""
    rows = [
        [
            name,
            str(each.problems),
            words.gain(each),
            words.at_large(each),
            words.chance(each),
            f"{each.better} / {each.worse}",
        ]
        for name, each in found.items()
    ]
    return Table(["", PROBLEMS, *DIFFERENCE, "p", "better / worse"], rows)


def repair_differences(evaluation: Evaluation) -> Table:
    """What repair changes, by set; without rows if it was run in one way only."""
    return differences({each.name: each.difference for each in evaluation.sets if each.difference is not None})


def passing(evaluation: Evaluation) -> Table:
    """pass@k for every k; where faults left some problems with fewer than k samples, on how many it rests."""
    return _by_set(evaluation, {name: name for name in words.passing_names(evaluation)}, _passing)


def majority(evaluation: Evaluation) -> Table:
    """maj@k for every k, in the same way."""
    return _by_set(evaluation, {name: name for name in words.passing_names(evaluation, "maj")}, _passing)


def endings(evaluation: Evaluation) -> Table:
    """How rollouts ended, and how many a fault left out."""
    runs = [(each.name, words.REPAIR[repair], run) for each in evaluation.sets for repair, run in each.runs.items()]
    if evaluation.recovery is not None:
        runs.append(("recovery", words.REPAIR[Repair.OFF], evaluation.recovery.overall))
    reasons = [reason for reason in StopReason if any(reason in run.stop_reasons for _, _, run in runs)]
    rows = []
    for name, repair, run in runs:
        left_out = sum(run.faults.values())
        total = sum(run.stop_reasons.values()) + left_out
        counts = [*(run.stop_reasons.get(reason, 0) for reason in reasons), left_out]
        rows.append([name, repair, *(_share(count, total) for count in counts)])
    return Table(["set", "", *map(words.ending, reasons), "left out (fault)"], rows)


def _share(count: int, total: int) -> str:
    return f"{count:,} ({100 * count / total:.1f} %)" if count else "0"


def tools(evaluation: Evaluation) -> Table:
    """How often calls fail, and what the model makes of it."""
    names = ("calls", "errors_first", "errors_residual", "error_share", "recovery", "right_after_error")
    return _by_set(
        evaluation, {name: words.LABELS[name] + (", %" if words.is_share(name) else "") for name in names}, _figure
    )


def cost(evaluation: Evaluation) -> Table:
    """What a trajectory takes."""
    unit = " or ".join(sorted({each.unit for each in evaluation.sets}))
    units = {"turns": "", "sampled": f", {unit}", "lookahead": f", {unit}", "tool_seconds": ", s", "latency": ", s"}
    return _by_set(evaluation, {name: words.LABELS[name] + own for name, own in units.items()}, _figure)


def recovery(result: RecoveryResult) -> Table:
    """What followed failures that were put in, by kind."""
    names = {"retried": "called again", "ran_next": "next call ran", "recovery": "recovered", "pass@1": "right"}
    rows = [
        [kind, str(len(run.problems)), *(_figure(run, name) for name in names)]
        for kind, run in (*result.kinds.items(), ("all", result.overall))
    ]
    return Table(["kind", PROBLEMS, *names.values()], rows)


def faults(evaluation: Evaluation) -> Table:
    """What broke and is in no figure."""
    rows = [
        [each.name, words.REPAIR[repair], reason, str(count)]
        for each in evaluation.sets
        for repair, run in each.runs.items()
        for reason, count in run.faults.items()
    ]
    if evaluation.recovery is not None:
        rows += [["recovery", "repair off", *map(str, each)] for each in evaluation.recovery.overall.faults.items()]
    return Table(["set", "", "what broke", "samples"], rows)


def settings(evaluation: Evaluation) -> Table:
    """What the figures depend on."""
    return Table(["setting", "value"], [[name, words.setting(value)] for name, value in evaluation.settings.items()])


def _by_set(evaluation: Evaluation, names: Mapping[str, str], cell: Callable[[RunScore, str], str]) -> Table:
    """One row for each way that a set was run; `names` are figures with their headings."""
    rows = [
        [each.name, words.REPAIR[repair], *(cell(run, name) for name in names)]
        for each in evaluation.sets
        for repair, run in each.runs.items()
    ]
    return Table(["set", "", *names.values()], rows)


def _figure(run: RunScore | None, name: str) -> str:
    return words.NOTHING if run is None else words.whole(name, run.figures.get(name))


def _passing(run: RunScore, name: str) -> str:
    found = run.figures.get(name)
    if found is None or found.problems == len(run.problems):
        return words.whole(name, found)
    return f"{words.whole(name, found)} ({found.problems} of {len(run.problems)} problems)"

"""What grading a run again changed, for the terminal."""

from __future__ import annotations

from cleaner_rl.evaluate.grade_changes import Regraded
from cleaner_rl.evaluate.report import words
from cleaner_rl.evaluate.report.markdown import table
from cleaner_rl.evaluate.report.tables import Table
from cleaner_rl.evaluate.results import Repair

SHOWN = 20
"""Tasks that are listed; `--json` has all of them."""


def text(found: Regraded) -> str:
    """Return what changed, task by task, and what stays as it was."""
    counts = ", ".join(f"{name}: {count:,}" for name, count in found.counts.most_common())
    parts = [
        f"{found.graded:,} rollouts are graded again; {len(found.changes):,} changed{f' ({counts})' * bool(counts)}."
    ]
    if found.skipped:
        left = ", ".join(f"{why}: {count:,}" for why, count in found.skipped.most_common())
        parts.append(f"{found.skipped.total():,} stay as they were ({left}).")
    if found.rates:
        parts.append(table(_changes(found)))
        if len(found.rates) > SHOWN:
            parts.append(f"{len(found.rates) - SHOWN:,} more tasks changed; --json lists them.")
    if found.scores:
        rows = [
            [name, words.REPAIR[Repair(repair)], words.value("pass@1", before), words.value("pass@1", after)]
            for name, repair, before, after in found.scores
        ]
        parts.append(table(Table(["set", "", "pass@1 before", "pass@1 after"], rows)))
    parts.append("Nothing was written (--dry-run)." if found.dry_run else f"Written to {found.folder}.")
    return "\n\n".join(parts)


def _changes(found: Regraded) -> Table:
    """A row for each task and each way in which its rollouts changed, with the first of them as an example."""
    rows = []
    for task, (before, after) in list(found.rates.items())[:SHOWN]:
        changes = [change for change in found.changes if change.key.task == task]
        rates = f"{before.right} of {before.judged} → {after.right} of {after.judged}"
        for way in dict.fromkeys((change.before, change.after) for change in changes):
            same = [change for change in changes if (change.before, change.after) == way]
            rows.append([task, rates, " → ".join(way), str(len(same)), _why(same[0].answer, same[0].reason)])
    return Table(["task", "right", "change", "rollouts", "the first: answer and reason"], rows)


def _why(answer: str | None, reason: str) -> str:
    shown = "no answer" if answer is None else answer if len(answer) <= 40 else f"{answer[:40]}…"
    return f"{shown}: {reason}" if reason else shown

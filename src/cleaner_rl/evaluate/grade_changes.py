"""What changed when stored rollouts were graded again, as plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from cleaner_rl.evaluate.bootstrap import Estimate
from cleaner_rl.evaluate.rates import Rate
from cleaner_rl.evaluate.results import Evaluation
from cleaner_rl.trajectory import Key


@dataclass(frozen=True, slots=True)
class GradeChange:
    """One rollout that is graded otherwise than before."""

    key: Key
    before: str
    """Right, wrong or ungraded."""
    after: str
    answer: str | None
    """The answer that the grader finds now."""
    reason: str
    """Why the grader decides so now."""


@dataclass(slots=True)
class Regraded:
    """The result of grading the rollouts of a folder again."""

    folder: Path
    dry_run: bool
    graded: int = 0
    changes: list[GradeChange] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    """Rollouts that stay as they were, by the reason."""
    rates: dict[str, tuple[Rate, Rate]] = field(default_factory=dict)
    """Right answers before and after, of the tasks in which something changed."""
    before: Evaluation | None = None
    """The results of an evaluation before; None for the folder of `cleaner rollout`."""
    after: Evaluation | None = None

    @property
    def counts(self) -> Counter[str]:
        """Return how many rollouts changed, by "before → after"."""
        return Counter(f"{each.before} → {each.after}" for each in self.changes)

    def to_json(self) -> dict[str, object]:
        """Return it as JSON values."""
        return {
            "folder": str(self.folder),
            "dry_run": self.dry_run,
            "graded": self.graded,
            "changed": len(self.changes),
            "counts": dict(self.counts),
            "skipped": dict(self.skipped),
            "tasks": {
                task: {"before": asdict(first), "after": asdict(second)} for task, (first, second) in self.rates.items()
            },
            "changes": [{**asdict(each), "key": asdict(each.key)} for each in self.changes],
            "pass@1": [
                {"set": name, "repair": repair, "before": first, "after": second}
                for name, repair, first, second in self.scores
            ],
        }

    @property
    def scores(self) -> list[tuple[str, str, float | None, float | None]]:
        """Return set, repair, and pass@1 before and after, of an evaluation."""
        if self.before is None or self.after is None:
            return []
        return [
            (first.name, str(repair), _pass_at_1(first.runs[repair].figures), _pass_at_1(run.figures))
            for first, second in zip(self.before.sets, self.after.sets, strict=True)
            for repair, run in second.runs.items()
        ]


def _pass_at_1(figures: Mapping[str, Estimate]) -> float | None:
    found = figures.get("pass@1")
    return None if found is None else found.value

"""Counts, from a model's trajectories: accuracy, failed first calls, corrections per try and failures left, by kind.

A *try* is the call after a failed one, by the model itself or in a lookahead; it *repairs* the failure if it runs.
*Left* are failed calls in the final history, including the attempts of a lookahead that found no correction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from benchmarks.toy.mistakes import Kind, kind_of
from cleaner_rl.tools import ToolResult
from cleaner_rl.trajectory import TokenSpan, Trajectory, Turn


@dataclass(frozen=True, slots=True)
class Figures:
    """Counts over trajectories."""

    trajectories: int
    right: int
    faults: int
    first_calls: int
    first: Counter[Kind] = field(default_factory=Counter)
    """First calls of a trajectory that failed."""
    tries: Counter[Kind] = field(default_factory=Counter)
    """Tries after such a failure."""
    repaired: Counter[Kind] = field(default_factory=Counter)
    left: Counter[Kind] = field(default_factory=Counter)
    edits: Counter[str] = field(default_factory=Counter)
    """Repairs by kind, and lookaheads in vain."""

    def to_json(self) -> dict[str, object]:
        """For a report: totals, and a row for each kind."""
        kinds = {
            kind.value: {
                "first": self.first[kind],
                "left": self.left[kind],
                "tries": self.tries[kind],
                "repaired": round(self.repaired[kind] / self.tries[kind], 3) if self.tries[kind] else None,
            }
            for kind in Kind
            if self.first[kind] or self.left[kind] or self.tries[kind]
        }
        judged = self.trajectories - self.faults
        return {
            "trajectories": self.trajectories,
            "faults": self.faults,
            "accuracy": round(self.right / judged, 4) if judged else None,
            "first_calls_failed": round(sum(self.first.values()) / max(1, self.first_calls), 4),
            "repaired_per_try": round(sum(self.repaired.values()) / max(1, sum(self.tries.values())), 4),
            "left": sum(self.left.values()),
            "edits": dict(self.edits),
            "kinds": kinds,
        }


def figures(trajectories: Iterable[Trajectory[TokenSpan]]) -> Figures:
    """Count."""
    made = Figures(0, 0, 0, 0)
    total, right, faults, first_calls = 0, 0, 0, 0
    for trajectory in trajectories:
        total += 1
        if not trajectory.usable:
            faults += 1
            continue
        right += bool(trajectory.success)
        made.left.update(kind for turn, ran in _placed(trajectory.turns) for kind in _kinds([turn], ran))
        made.edits.update(edit.kind.value if edit.commits else "in vain" for _, edit in trajectory.edits)
        sampled = list(_sampled(trajectory.turns))
        if sampled and sampled[0][0].calls:
            first_calls += 1
            made.first.update(_kinds([sampled[0][0]], False))
        for (turn, ran), (following, _) in pairwise(sampled):
            for kind in _kinds([turn], ran):
                made.tries[kind] += 1
                made.repaired[kind] += bool(following.results) and not following.failed
    return Figures(total, right, faults, first_calls, made.first, made.tries, made.repaired, made.left, made.edits)


def _kinds(turns: Sequence[Turn[TokenSpan]], ran: bool) -> list[Kind]:
    results: list[ToolResult] = [result for turn in turns for result in turn.results]
    return [kind_of(result, ran) for result in results if result.failed]


def _placed(turns: Sequence[Turn[TokenSpan]]) -> Iterator[tuple[Turn[TokenSpan], bool]]:
    """Each turn of a history, with whether a call before it ran well."""
    ran = False
    for turn in turns:
        yield turn, ran
        ran = ran or any(not result.failed for result in turn.results)


def _sampled(turns: Sequence[Turn[TokenSpan]]) -> Iterator[tuple[Turn[TokenSpan], bool]]:
    """Each turn that was sampled, in order, attempts of lookaheads included, with whether a call before it ran well."""
    for turn, ran in _placed(turns):
        for each in turn.edit.original if turn.edit else (turn,):
            yield each, ran

"""How many calls of a rollout failed: before any repair, and in the final history.

*Residual* counts the calls in the final history. *First attempt* counts what the model did before any repair: an
edited turn counts as the turns that it replaced, and the attempts of a lookahead are left out.

Limits: a call that was never run, and one under which the infrastructure broke, are in no tally.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias, cast

from cleaner_rl.tools import ToolResult
from cleaner_rl.trajectory.edits import without_rescoring
from cleaner_rl.trajectory.spans import S, TextSpan, TokenSpan
from cleaner_rl.trajectory.trajectory import AnyTrajectory, Trajectory
from cleaner_rl.trajectory.turns import Turn

AnyTurn: TypeAlias = Turn[TextSpan] | Turn[TokenSpan]


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of failed calls and of all calls."""

    failed: int = 0
    calls: int = 0

    @property
    def share(self) -> float | None:
        """Return the share of failed calls, from 0 to 1; None if there was no call."""
        return self.failed / self.calls if self.calls else None


def first_attempt_tally(trajectory: AnyTrajectory) -> Tally:
    """Count the failed calls of what the model did before any repair."""
    return _tally(result for turn in trajectory.turns for each in first_attempts(turn) for result in each.results)


def residual_tally(trajectory: AnyTrajectory) -> Tally:
    """Count the failed calls of the final history."""
    return _tally(result for turn in trajectory.turns for result in turn.results)


def failures_repaired(trajectory: AnyTrajectory) -> Iterator[bool]:
    """Return, for each turn that failed before any repair, whether a repair replaced it."""
    for turn in trajectory.turns:
        repaired = turn.edit is not None and turn.edit.commits
        yield from (repaired for each in first_attempts(turn) if each.failed)


def before_repairs(trajectory: Trajectory[S]) -> Trajectory[S]:
    """Return the turns of the rollout itself: a failure in the place of its repair, and no attempt of a lookahead.

    It is the same for a rollout and for every repair of it. After SAAR it is no sequence that the model has seen.
    """
    turns = [each for turn in cast("AnyTrajectory", trajectory).turns for each in first_attempts(turn)]
    return without_rescoring(replace(trajectory, turns=cast("tuple[Turn[S], ...]", tuple(turns))))


def first_attempts(turn: AnyTurn) -> Iterator[AnyTurn]:
    """Return the turns of the rollout itself that a turn of the history replaced.

    After SAAR that is only the failure: all others in its edit are attempts of the lookahead. After hindsight it is
    everything that was replaced.
    """
    if turn.edit is not None:
        for original in turn.edit.original:
            yield from first_attempts(original)
    elif turn.attempt == 0:
        yield turn


def _tally(results: Iterable[ToolResult]) -> Tally:
    failures = [result.failed for result in results if not result.faulty]
    return Tally(sum(failures), len(failures))

"""How many calls of a rollout failed: as the model left it, and as it stands.

*Residual* counts the calls in the final history. *First attempt* counts what the model did before anybody helped it: an
edited turn stands for the turns in its ledger, and the attempts of a lookahead are left out.

Limits: a call that was never run, and one under which the infrastructure broke, are in no tally.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from cleaner_rl.tools import ToolResult
from cleaner_rl.trajectory.spans import TextSpan, TokenSpan
from cleaner_rl.trajectory.trajectory import AnyTrajectory
from cleaner_rl.trajectory.turns import Turn

AnyTurn: TypeAlias = Turn[TextSpan] | Turn[TokenSpan]


@dataclass(frozen=True, slots=True)
class Tally:
    """Failed calls among calls."""

    failed: int = 0
    calls: int = 0

    @property
    def share(self) -> float | None:
        """Between 0 and 1; None where there was no call to fail."""
        return self.failed / self.calls if self.calls else None


def first_attempt_tally(trajectory: AnyTrajectory) -> Tally:
    """Of what the model did unaided."""
    return _tally(result for turn in trajectory.turns for each in first_attempts(turn) for result in each.results)


def residual_tally(trajectory: AnyTrajectory) -> Tally:
    """Of the final history."""
    return _tally(result for turn in trajectory.turns for result in turn.results)


def failures_mended(trajectory: AnyTrajectory) -> Iterator[bool]:
    """For each turn that the model failed in unaided: whether a repair took its place."""
    for turn in trajectory.turns:
        mended = turn.edit is not None and turn.edit.commits
        yield from (mended for each in first_attempts(turn) if each.failed)


def first_attempts(turn: AnyTurn) -> Iterator[AnyTurn]:
    """The turns of the rollout itself that a turn of the history stands for.

    Of a live repair that is the failure alone: all others in its ledger are attempts of the lookahead. In hindsight it
    is everything that was collapsed.
    """
    if turn.edit is not None:
        for original in turn.edit.original:
            yield from first_attempts(original)
    elif turn.attempt == 0:
        yield turn


def _tally(results: Iterable[ToolResult]) -> Tally:
    failures = [result.failed for result in results if not result.faulty]
    return Tally(sum(failures), len(failures))

"""What was really sampled, and edits undone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Generic

from cleaner_rl.trajectory.spans import S
from cleaner_rl.trajectory.trajectory import Trajectory
from cleaner_rl.trajectory.turns import RepairMode, Turn


@dataclass(frozen=True, slots=True)
class Sampled(Generic[S]):
    """A turn as it was sampled, after the turns that the model saw then."""

    context: tuple[Turn[S], ...]
    turn: Turn[S]


def sampled_turns(trajectory: Trajectory[S]) -> Iterator[Sampled[S]]:
    """Yield every turn that the model really sampled, in order, each with the turns that preceded it at that time."""
    context: list[Turn[S]] = []
    for turn in map(_unscored, _before_hindsight(trajectory.turns)):
        lookahead = list(context)
        for piece in turn.edit.original if turn.edit is not None else (turn,):
            yield Sampled(tuple(lookahead), piece)
            # An attempt without a call has no feedback that a next one could follow: that one started where it did.
            if piece.observation is not None:
                lookahead.append(piece)
        context.append(turn)


def undo(trajectory: Trajectory[S], turn: int) -> Trajectory[S]:
    """Undo a hindsight edit: put back what it replaced. The other edits stay.

    Undoing all of them, in any order, gives the original back bit for bit. A SAAR edit can't be undone: what followed
    was sampled after it. `sampled_turns` shows what it replaced.

    Examples:
        >>> from cleaner_rl.trajectory import Edit, RepairKind, RepairMode, TextSpan, Trajectory, Turn, undo
        >>> failed, worked = Turn(TextSpan("First.")), Turn(TextSpan("Second."))
        >>> edit = Edit(RepairMode.HINDSIGHT, RepairKind.REPLACE, (failed, worked))
        >>> repaired = Trajectory(TextSpan("1 + 1?"), (Turn(TextSpan("Second."), edit=edit),))
        >>> [turn.text for turn in undo(repaired, 0).turns]
        ['First.', 'Second.']
    """
    edit = trajectory.turns[turn].edit
    if edit is None or edit.mode is not RepairMode.HINDSIGHT:
        raise ValueError(
            f"turn {turn} was not edited in hindsight, so there is nothing to put back; see `sampled_turns`"
        )
    later = tuple(_unscored(each) for each in trajectory.turns[turn + 1 :])
    return replace(trajectory, turns=trajectory.turns[:turn] + edit.original + later)


def without_hindsight(trajectory: Trajectory[S]) -> Trajectory[S]:
    """Return the trajectory without its repairs in hindsight."""
    # From the last to the first, so that the positions of those still to be undone stay right.
    for index, edit in reversed(trajectory.edits):
        if edit.mode is RepairMode.HINDSIGHT:
            trajectory = undo(trajectory, index)
    return trajectory


def without_rescoring(trajectory: Trajectory[S]) -> Trajectory[S]:
    """Drop the log-probs of earlier re-scorings, before a further edit makes them wrong."""
    return replace(trajectory, turns=tuple(_unscored(turn) for turn in trajectory.turns))


def cut_before_repairs(trajectory: Trajectory[S]) -> Trajectory[S]:
    """Cut a rollout that SAAR repaired after its first repaired failure: the longest beginning without a repair."""
    for index, turn in enumerate(trajectory.turns):
        if turn.edit is not None and turn.edit.mode is RepairMode.SAAR and turn.edit.commits:
            return replace(trajectory, turns=trajectory.turns[:index] + turn.edit.original[:1])
    return trajectory


def _before_hindsight(turns: tuple[Turn[S], ...]) -> Iterator[Turn[S]]:
    for turn in turns:
        if turn.edit is not None and turn.edit.mode is RepairMode.HINDSIGHT:
            yield from _before_hindsight(turn.edit.original)
        else:
            yield turn


def _unscored(turn: Turn[S]) -> Turn[S]:
    if not any(span.is_rescored for span in turn.spans()):
        return turn
    return turn.with_spans(lambda span: span.without_rescoring())

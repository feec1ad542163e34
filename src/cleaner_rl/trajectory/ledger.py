"""What was really sampled, and edits undone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Generic

from cleaner_rl.trajectory.spans import S
from cleaner_rl.trajectory.trajectory import Trajectory
from cleaner_rl.trajectory.turns import Mode, Turn


@dataclass(frozen=True, slots=True)
class Sampled(Generic[S]):
    """A turn as it was sampled, after the turns that the model saw then."""

    context: tuple[Turn[S], ...]
    turn: Turn[S]


def raw(trajectory: Trajectory[S]) -> Iterator[Sampled[S]]:
    """Every turn that the model really sampled, in order, each with the turns that stood before it at that time."""
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
    """Put back what an edit in hindsight took away; the other edits stay.

    Undoing all of them, in any order, gives the original back bit for bit. A live edit can't be undone: what followed
    was sampled after it. `raw` shows what it replaced.
    """
    edit = trajectory.turns[turn].edit
    if edit is None or edit.mode is not Mode.HINDSIGHT:
        raise ValueError(f"turn {turn} was not edited in hindsight, so there is nothing to put back; see `raw`")
    later = tuple(_unscored(each) for each in trajectory.turns[turn + 1 :])
    return replace(trajectory, turns=trajectory.turns[:turn] + edit.original + later)


def without_rescoring(trajectory: Trajectory[S]) -> Trajectory[S]:
    """Drop the log-probs of earlier re-scorings, before a further edit makes them wrong."""
    return replace(trajectory, turns=tuple(_unscored(turn) for turn in trajectory.turns))


def cut_before_repairs(trajectory: Trajectory[S]) -> Trajectory[S]:
    """A rollout repaired live, cut after its first repaired failure: the longest beginning that is wholly raw."""
    for index, turn in enumerate(trajectory.turns):
        if turn.edit is not None and turn.edit.mode is Mode.LIVE and turn.edit.commits:
            return replace(trajectory, turns=trajectory.turns[:index] + turn.edit.original[:1])
    return trajectory


def _before_hindsight(turns: tuple[Turn[S], ...]) -> Iterator[Turn[S]]:
    for turn in turns:
        if turn.edit is not None and turn.edit.mode is Mode.HINDSIGHT:
            yield from _before_hindsight(turn.edit.original)
        else:
            yield turn


def _unscored(turn: Turn[S]) -> Turn[S]:
    if not any(span.is_rescored for span in turn.spans()):
        return turn
    return turn.with_spans(lambda span: span.without_rescoring())

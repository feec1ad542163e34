"""What a person said of the decisions about a trajectory's calls, and the trajectory that follows.

A decision is known by its content, not by its place: the same failed call with the same correction is one edit,
whichever store it is in. A review file has a line for each answer, the latest last.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from enum import StrEnum
from hashlib import blake2b
from pathlib import Path

from cleaner_rl.trajectory.edits import undo
from cleaner_rl.trajectory.spans import S
from cleaner_rl.trajectory.trajectory import Trajectory
from cleaner_rl.trajectory.turns import RepairMode, Turn


class Said(StrEnum):
    """An answer."""

    RIGHT = "right"
    WRONG = "wrong"
    UNKNOWN = "can't tell"


def edit_id(turn: Turn[S]) -> str:
    """Return the name of a turn's edit."""
    assert turn.edit is not None
    return _digest("edit", *(each.text for each in turn.edit.original), turn.text)


def result_id(turn: Turn[S], place: int) -> str:
    """Return the name of the verdict on one of a turn's results."""
    shown = "" if turn.observation is None else turn.observation.text
    return _digest("result", str(place), turn.text, shown)


def is_undone(turn: Turn[S], wrong: Collection[str]) -> bool:
    """Return whether a turn has an edit that was found wrong and can be undone."""
    return turn.edit is not None and turn.edit.mode is RepairMode.HINDSIGHT and edit_id(turn) in wrong


def reviewed(trajectory: Trajectory[S], wrong: Collection[str]) -> Trajectory[S]:
    """Return a trajectory without what was found wrong: edits are undone, and such a success is no longer known."""
    for index in reversed(range(len(trajectory.turns))):
        turn = trajectory.turns[index]
        if is_undone(turn, wrong):
            trajectory = undo(trajectory, index)
        elif turn.verified and any(result_id(turn, place) in wrong for place in range(len(turn.results))):
            turns = (*trajectory.turns[:index], replace(turn, results=()), *trajectory.turns[index + 1 :])
            trajectory = replace(trajectory, turns=turns)
    return trajectory


def read_reviews(path: Path) -> Mapping[str, Said]:
    """Return the latest answer to each decision; a last line that was cut off counts for nothing."""
    said: dict[str, Said] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            row = json.loads(line)
            said[row["id"]] = Said(row["said"])
        except (ValueError, KeyError, TypeError):
            continue
    return said


def _digest(*texts: str) -> str:
    return blake2b("\0".join(texts).encode(errors="surrogatepass"), digest_size=8).hexdigest()

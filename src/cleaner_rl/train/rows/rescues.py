"""How a rescued rollout joins the group that it was made for: whose place its row takes, and which advantages it makes.

A rescue (`cleaner_rl.rollout.rescue`) gives a right rollout to a group in which all others are wrong. By default it is
one more rollout of the group. The other settings are for trainers that take a fixed number of rows, and for ablations.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from enum import StrEnum

from cleaner_rl.resample import Selection
from cleaner_rl.train.rows.row import Graded

CAP = 1.0
"""The most that `RescueAdvantage.CAPPED` leaves to a rescue: about what a right rollout has if half of its group is
right. Uncapped, the only right one of G rollouts has (G - 1) / √G."""


class RescueRows(StrEnum):
    """Whose place the row of a rescued rollout takes. RoC, which keeps a fixed number, has one more to select from."""

    JOIN = "join"
    """Nobody's: the group has one row more."""
    REPLACE = "replace"
    """That of the wrong rollout which the rescue began with. It is left out of the group's mean and deviation, and the
    group has as many rows as without a rescue, which some trainers need."""


class RescueAdvantage(StrEnum):
    """Which advantages the rollouts of a rescued group have."""

    GROUP = "group"
    """Those of any group: the rescue is reinforced, and the wrong rollouts are suppressed."""
    CAPPED = "capped"
    """The same, but its advantage is capped at 1."""
    RESCUE_ONLY = "rescue_only"
    """The rescue has that of any group, and the wrong rollouts have 0: nothing is suppressed."""


def replaced(group: Sequence[Graded], excluded: Collection[int]) -> set[int]:
    """Return the indices of the rollouts whose place a rescue takes: none, or one. `excluded` rescues take none."""
    rescues = [each for index, each in enumerate(group) if each.info.rescued is not None and index not in excluded]
    sources = {each.info.rescued["of"] for each in rescues if each.info.rescued is not None}
    return {index for index, each in enumerate(group) if each.key.rollout in sources and each.info.rescued is None}


def with_rescue_advantages(selection: Selection, group: Sequence[Graded], setting: RescueAdvantage) -> Selection:
    """Return the selection with the advantages that a setting gives a group, if a rescue of it is kept."""
    kept = [group[index] for index in selection.kept]
    if setting is RescueAdvantage.GROUP or not any(each.info.rescued for each in kept):
        return selection
    changed = [_changed(each, advantage, setting) for each, advantage in zip(kept, selection.advantages, strict=True)]
    return replace(selection, advantages=tuple(changed))


def _changed(trajectory: Graded, advantage: float, setting: RescueAdvantage) -> float:
    if trajectory.info.rescued is None:
        return 0.0 if setting is RescueAdvantage.RESCUE_ONLY else advantage
    return min(CAP, advantage) if setting is RescueAdvantage.CAPPED else advantage

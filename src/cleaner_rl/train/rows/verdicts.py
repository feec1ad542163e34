"""Writes into each rollout of a group what became of it, for the store and the viewer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from cleaner_rl.resample import PlainConfig, RocConfig, verdicts
from cleaner_rl.train.rows.groups import RowGroup
from cleaner_rl.train.rows.row import Exclusion, Graded, View
from cleaner_rl.trajectory import Key

REPLACED = "its rescue takes its place"


def with_verdicts(group: Sequence[Graded], made: RowGroup, config: RocConfig | PlainConfig) -> list[Graded]:
    """Return a group's rollouts, each with whether it is trained on, why, and its advantage.

    `views` names the views that it is trained on; it is left out for the clean view alone.
    """
    told = list(verdicts(made.selection, config))
    for index, why in made.excluded.items():
        if why is Exclusion.REPLACED:
            told[index] = {**told[index], "why": REPLACED}
    views: dict[Key, list[str]] = defaultdict(list)
    for row in made.rows:
        views[row.key].append(row.view.value)
    shown = {key: {"views": names} for key, names in views.items() if names != [View.CLEAN.value]}
    return [
        replace(rollout, info=replace(rollout.info, verdict={**verdict, **shown.get(rollout.key, {})}))
        for rollout, verdict in zip(group, told, strict=True)
    ]

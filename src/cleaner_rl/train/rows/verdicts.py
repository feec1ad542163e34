"""Writes into each rollout of a group what became of it, for the store and the viewer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cleaner_rl.resample import PlainConfig, RocConfig, verdicts
from cleaner_rl.train.rows.groups import RowGroup
from cleaner_rl.train.rows.row import Graded, View


def with_verdicts(group: Sequence[Graded], made: RowGroup, config: RocConfig | PlainConfig) -> list[Graded]:
    """Return a group's rollouts, each with whether it is trained on, why, its advantage, and the view if not clean."""
    told = verdicts(made.selection, config)
    views = {row.key: {"view": row.view.value} for row in made.rows if row.view is not View.CLEAN}
    return [
        replace(rollout, info=replace(rollout.info, roc={**verdict, **views.get(rollout.key, {})}))
        for rollout, verdict in zip(group, told, strict=True)
    ]

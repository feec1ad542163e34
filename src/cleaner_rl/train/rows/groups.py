"""Compares the rollouts of a group and gives its rows, with their advantages.

The order is `resample.select`'s: rollouts without a row are absent before anything is counted, a group that is left too
small or has zero variance is returned, RoC keeps its share, and the advantages are those of the kept rollouts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from cleaner_rl.purify import Views
from cleaner_rl.resample import PlainConfig, RocConfig, Selection, group_of, select
from cleaner_rl.train.rows.failed_turns import failed_tokens
from cleaner_rl.train.rows.rescues import RescueAdvantage, RescueRows, replaced, with_rescue_advantages
from cleaner_rl.train.rows.row import Exclusion, Graded, GraftLogprobs, TrainRow, View, row_or_exclusion, to_row
from cleaner_rl.train.rows.views import draws_recovery, recovery_view


@dataclass(frozen=True, slots=True)
class RowConfig:
    """Says how the rollouts of a group become rows."""

    group: RocConfig | PlainConfig = field(default_factory=PlainConfig)
    """Which rollouts of a group are kept."""
    seed: int = 0
    """Seed of the draws of RoC and of `Views.ONE`."""
    mask_failed: bool = False
    """Leave failed turns out of the loss in rows with a positive advantage (the method `mask`). A rollout that is
    worse than its group keeps its failed turns in the loss, because there they are suppressed."""
    logprobs: GraftLogprobs = GraftLogprobs.RESCORED
    """Which log-prob a token has that an edit moved."""
    views: Views = Views.CLEAN
    """Which views of a repaired rollout become rows, if its advantage is positive."""
    mass: float | None = None
    """How much a repaired rollout counts, if its advantage is positive; see `PurifyConfig.mass`."""
    rescue_rows: RescueRows = RescueRows.JOIN
    """Whose place the row of a rescued rollout takes."""
    rescue_advantage: RescueAdvantage = RescueAdvantage.CAPPED
    """Which advantages the rollouts of a rescued group have."""
    dynamic_sampling: bool = False
    """Return zero-variance groups, which have no gradient."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Holds what a trainer gets of one group."""

    rows: tuple[TrainRow, ...]
    """Rows to train on, each with its advantage; empty if the group is returned."""
    selection: Selection
    """Which rollouts were kept and dropped, or why the group is returned."""
    excluded: dict[int, Exclusion]
    """By index: rollouts that give no row, and why. They are in no statistic."""

    @property
    def faults(self) -> int:
        """Return how many rollouts were lost to infrastructure faults."""
        return sum(why is Exclusion.FAULT for why in self.excluded.values())


def group_rows(trajectories: Sequence[Graded], config: RowConfig) -> RowGroup:
    """Return the rows of a group: the finished rollouts of one prompt in one step.

    Args:
        trajectories: All rollouts of the group, also those that a fault ended.
        config: How they become rows.

    Examples:
        >>> from cleaner_rl.train.rows import RowConfig, group_rows
        >>> from cleaner_rl.trajectory import Key, Trajectory, Turn, token_span
        >>> def rollout(number, reward):
        ...     answer = Turn(token_span("2", [7], logprobs=[-0.5]))
        ...     return Trajectory(token_span("1 + 1?", [3, 4]), (answer,), Key("run", 1, "sum", number), reward=reward)
        >>> group = group_rows([rollout(0, 1.0), rollout(1, -1.0), rollout(2, None)], RowConfig())
        >>> [(row.key.rollout, round(row.advantage, 2)) for row in group.rows], group.faults
        ([(0, 0.71), (1, -0.71)], 1)
    """
    made = [row_or_exclusion(trajectory, config.logprobs) for trajectory in trajectories]
    excluded = {index: each for index, each in enumerate(made) if isinstance(each, Exclusion)}
    if config.rescue_rows is RescueRows.REPLACE and isinstance(config.group, PlainConfig):
        excluded |= dict.fromkeys(replaced(trajectories, excluded), Exclusion.REPLACED)
    group = group_of(
        trajectories,
        [0 if trajectory.info.answer is None else 1 for trajectory in trajectories],
        usable=[index not in excluded for index in range(len(trajectories))],
    )
    selection = select(group, config.group, config.seed, dynamic_sampling=config.dynamic_sampling)
    selection = with_rescue_advantages(selection, trajectories, config.rescue_advantage)
    rows: list[TrainRow] = []
    for index, advantage in zip(selection.kept, selection.advantages, strict=True):
        row = made[index]
        assert isinstance(row, TrainRow)
        rows += compared_rows(trajectories[index], row, advantage, config)
    return RowGroup(tuple(rows), selection, excluded)


def compared_rows(trajectory: Graded, row: TrainRow, advantage: float, config: RowConfig) -> list[TrainRow]:
    """Return the rows of a rollout that has been compared with its group: one, or one for each of its two views.

    `row` is what `to_row` made of it. A rollout that is worse than its group has its clean view alone: there is nothing
    in it to imitate.
    """
    raw = recovery_view(trajectory) if advantage > 0 else None
    if raw is None:
        return [_compared(trajectory, row, advantage, config.mask_failed)]
    # The loss is linear in a positive advantage, so this is a weight that every trainer knows.
    share = 1.0 if config.mass is None else config.mass / (2 if config.views.two_rows else 1)
    clean = _compared(trajectory, row, share * advantage, config.mask_failed)
    if config.views is Views.CLEAN or (config.views is Views.ONE and not draws_recovery(config.seed, trajectory.key)):
        return [clean]
    shown = to_row(raw, config.logprobs)
    assert shown is not None
    recovery = replace(_compared(raw, shown, share * advantage, mask_failed=True), view=View.RECOVERY)
    return [recovery] if config.views is Views.ONE else [clean, recovery]


def _compared(trajectory: Graded, row: TrainRow, advantage: float, mask_failed: bool) -> TrainRow:
    mask = row.loss_mask
    if mask_failed and advantage > 0:
        mask = mask & ~failed_tokens(trajectory)[len(trajectory.prompt) :]
    return replace(row, advantage=advantage, loss_mask=mask)

"""Turns finished trajectories into rows, which are what any trainer takes; knows no trainer.

- `row`: one trajectory as a row of ids, loss mask and log-probs, or why it gives none.
- `groups`: the rows of a group, with their advantages; faults are in no statistic.
- `failed_turns`: the tokens of failed turns, which the method `mask` leaves out of the loss.
- `verdicts`: what became of each rollout of a group, for the store.
- `rescues`: how a rescued rollout joins its group.
- `views`: the clean and the recovery view of a repaired rollout.
- `overlong`: DAPO's soft penalty on the reward of an overlong response.

An adapter for a trainer (`train.verl`, `train.trl`, `train.verifiers`) gives the trainer these rows and nothing else.
`cleaner_rl.contracts.trainers` tests that it does.
"""

from cleaner_rl.purify import Views
from cleaner_rl.train.rows.failed_turns import failed_tokens
from cleaner_rl.train.rows.groups import RowConfig, RowGroup, group_rows
from cleaner_rl.train.rows.overlong import OverlongPenalty
from cleaner_rl.train.rows.rescues import RescueAdvantage, RescueRows
from cleaner_rl.train.rows.row import Exclusion, Graded, GraftLogprobs, TrainRow, View, exclusion, to_row
from cleaner_rl.train.rows.views import recovery_view

__all__ = [
    "Exclusion",
    "Graded",
    "GraftLogprobs",
    "OverlongPenalty",
    "RescueAdvantage",
    "RescueRows",
    "RowConfig",
    "RowGroup",
    "TrainRow",
    "View",
    "Views",
    "exclusion",
    "failed_tokens",
    "group_rows",
    "recovery_view",
    "to_row",
]

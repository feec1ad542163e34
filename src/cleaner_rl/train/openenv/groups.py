"""The rows of a group of captured rollouts, each of which may have several chains of tokens.

A rollout is compared with its group once, and each of its chains gives a row with its advantage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cleaner_rl.train.rows import Graded, RowConfig, RowGroup, TrainRow, group_rows, to_row
from cleaner_rl.train.rows.groups import compared_rows


def group_chains(rollouts: Sequence[Sequence[Graded]], config: RowConfig) -> RowGroup:
    """Return the rows of a group of rollouts, given as their chains (`CleanerSession.trajectories`).

    GRPO-RoC counts the failed calls of a rollout's first chain.

    Args:
        rollouts: All rollouts of the group, each with at least one chain.
        config: How they become rows.

    Examples:
        >>> from cleaner_rl.train.openenv import group_chains
        >>> from cleaner_rl.train.rows import RowConfig
        >>> from cleaner_rl.trajectory import Key, Trajectory, Turn, token_span
        >>> def chain(number, reward, token):
        ...     said = Turn(token_span("2", [token], logprobs=[-0.5]))
        ...     return Trajectory(token_span("1 + 1?", [3]), (said,), Key("run", 1, "sum", number), reward=reward)
        >>> made = group_chains([[chain(0, 1.0, 7), chain(0, 1.0, 8)], [chain(1, -1.0, 9)]], RowConfig())
        >>> [(row.response_ids.tolist(), round(row.advantage, 2)) for row in made.rows]
        [([7], 0.71), ([9], -0.71), ([8], 0.71)]
    """
    made = group_rows([chains[0] for chains in rollouts], config)
    rows: list[TrainRow] = list(made.rows)
    for index, advantage in zip(made.selection.kept, made.selection.advantages, strict=True):
        for chain in rollouts[index][1:]:
            row = to_row(chain, config.logprobs)
            rows += compared_rows(chain, row, advantage, config) if row is not None else []
    return replace(made, rows=tuple(rows))

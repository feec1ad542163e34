"""Gives failed turns their own cost, in place of their rollout's advantage.

The value of a state, which is a turn's number and how many turns before it failed, is the mean advantage of the
rollouts that came through it, shrunk towards 0. A failed turn costs the value after it minus the value before it: about
0 where a call must be tried, below 0 where a failure costs turns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from cleaner_rl.train.rows import Graded, RowGroup, TrainRow, View
from cleaner_rl.trajectory import Floats, without_hindsight

SHRINKS = 4.0
"""Rollouts with an advantage of 0 that each state has."""
KEPT = 0.7
"""Share of a state's weight that it keeps to the next step."""


@dataclass(frozen=True, slots=True, eq=False)
class CostedRow(TrainRow):
    """A row with an advantage for each token of the response."""

    advantages: Floats | None = None


def token_advantages(row: TrainRow) -> npt.NDArray[np.floating[Any]]:
    """Return the advantage of each token in the loss."""
    if isinstance(row, CostedRow) and row.advantages is not None:
        return row.advantages[row.loss_mask]
    return np.full(int(row.loss_mask.sum()), row.advantage)


class Values:
    """Holds the values of a run's states."""

    def __init__(self) -> None:
        self._sums: dict[tuple[int, int], tuple[float, float]] = {}
        """By state: the sum of advantages, and the number of rollouts, both with older ones for less."""

    def at(self, turn: int, failures: int) -> float:
        """Return the value before a turn, after so many failed ones."""
        total, count = self._sums.get((turn, failures), (0.0, 0.0))
        return total / (count + SHRINKS)

    def learn(self, rollouts: Iterable[tuple[Graded, float]]) -> None:
        """Take in the rollouts of a step as they were sampled, each with its advantage."""
        new: dict[tuple[int, int], list[float]] = defaultdict(list)
        for rollout, advantage in rollouts:
            for turn, failures in _states(rollout):
                new[turn, failures].append(advantage)
        for state in self._sums.keys() | new.keys():
            total, count = self._sums.get(state, (0.0, 0.0))
            self._sums[state] = (KEPT * total + sum(new[state]), KEPT * count + len(new[state]))

    def costs(self, rollout: Graded, advantage: float) -> dict[int, float]:
        """Return the cost of each failed turn; the last one's leads to the rollout's own advantage."""
        last = len(rollout.turns) - 1
        return {
            turn: (advantage if turn == last else self.at(turn + 1, failures + 1)) - self.at(turn, failures)
            for turn, failures in _states(rollout)
            if rollout.turns[turn].failed
        }


def _states(rollout: Graded) -> Iterator[tuple[int, int]]:
    failures = 0
    for number, turn in enumerate(rollout.turns):
        yield number, failures
        failures += turn.failed


def at_own_cost(groups: Iterable[tuple[Iterable[Graded], RowGroup]], values: Values) -> list[tuple[TrainRow, ...]]:
    """Return the rows of each group, failed turns at their own cost. A clean view has none of them, and stays."""
    sampled = [({each.key: without_hindsight(each) for each in drawn}, made) for drawn, made in groups]
    values.learn(
        (raw, advantage)
        for by_key, made in sampled
        for key, advantage in {row.key: _of_rollout(made, row) for row in made.rows}.items()
        for raw in (by_key[key],)
    )
    return [
        tuple(_costed(row, by_key[row.key], _of_rollout(made, row), values) for row in made.rows)
        for by_key, made in sampled
    ]


def _of_rollout(made: RowGroup, row: TrainRow) -> float:
    """Return the advantage of a row's rollout, which is its own but for its share of a mass."""
    numbers = made.selection.group.rollouts
    return next(
        advantage
        for index, advantage in zip(made.selection.kept, made.selection.advantages, strict=True)
        if numbers[index] == row.key.rollout
    )


def _costed(row: TrainRow, raw: Graded, advantage: float, values: Values) -> TrainRow:
    is_raw = len(raw) == len(row.prompt_ids) + len(row.response_ids)
    if row.view is not View.RECOVERY and not (is_raw and (raw.ids()[len(raw.prompt) :] == row.response_ids).all()):
        return row
    costs = values.costs(raw, advantage)
    if not costs:
        return row
    assert row.advantage is not None
    start, mask = len(raw.prompt), raw.loss_mask()
    share = row.advantage / advantage if advantage else 1.0
    advantages = np.concatenate(
        [np.full(len(placed.span), share * costs.get(placed.turn, advantage), np.float32) for placed in raw.placed()]
    )
    given = {each.name: getattr(row, each.name) for each in fields(row)}
    return CostedRow(**(given | {"loss_mask": mask[start:], "advantages": advantages[start:]}))

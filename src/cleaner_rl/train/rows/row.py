"""Turns one finished trajectory into a row, or says why it gives none.

Shapes: arrays of a row have one entry for each token of the prompt (`prompt_ids`) or of the response (all others).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from cleaner_rl.trajectory import Floats, Ids, Key, StopReason, TokenSpan, Trajectory

Graded: TypeAlias = Trajectory[TokenSpan]
"""A finished rollout: graded, purified and re-scored, or ended by a fault."""


class GraftLogprobs(StrEnum):
    """Which log-prob of a moved token the trainer takes for the rollout's."""

    RESCORED = "rescored"
    """The log-prob in the repaired context, as if the token had been sampled there, as in the paper."""
    SAMPLED = "sampled"
    """The log-prob at which it was sampled: its importance weight is π_old(repaired) over π(lookahead)."""


class LogprobSource(StrEnum):
    """Says which log-probs a row has."""

    SAMPLED = "sampled"
    """Every token has the log-prob at which it was sampled."""
    RESCORED = "rescored"
    """An edit moved some tokens: these have their log-prob in the repaired context, all others as sampled."""


class View(StrEnum):
    """Says which view of a rollout a row shows; see `views`."""

    CLEAN = "clean"
    """The rollout as it was purified."""
    RECOVERY = "recovery"
    """The rollout as it was sampled, with its failed turns out of the loss."""


class Exclusion(StrEnum):
    """Says why a rollout gives no row."""

    FAULT = "fault"
    """The engine, a tool or the grader broke, nothing was sampled, or a moved token was never re-scored."""
    LEFT_OUT = "left_out"
    """Nothing broke: the rollout was dropped by the purifier, or ran out of time."""
    REPLACED = "replaced"
    """Its rescue takes its place (`RescueRows.REPLACE`)."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainRow:
    """Holds one sequence as a trainer takes it."""

    key: Key
    """The rollout that it was made from."""
    prompt_ids: Ids
    response_ids: Ids
    """All tokens after the prompt, the model's and the tools'."""
    loss_mask: npt.NDArray[np.bool_]
    """True where a token is in the loss."""
    logprobs: Floats
    """The rollout's log-probs. They are 0 where the model sampled nothing."""
    logprob_source: LogprobSource
    reward: float
    versions: tuple[int, int]
    """The oldest and the newest weights that sampled or scored it; 0 if the engine doesn't number them."""
    advantage: float | None = None
    """The rollout's advantage in its group, times the row's share of `RowConfig.mass`; None until it is compared."""
    weight: float = 1.0
    """Weight of each of its tokens in the loss, numerator and denominator. A rollout counts once in its group's mean
    and deviation, however many rows it gives."""
    view: View = View.CLEAN


def to_row(trajectory: Graded, logprobs: GraftLogprobs = GraftLogprobs.RESCORED) -> TrainRow | None:
    """Return the trajectory as a row that isn't compared with its group yet; None if it must not be trained on.

    Args:
        trajectory: A finished rollout.
        logprobs: Which log-prob a token has that an edit moved.

    Examples:
        >>> from cleaner_rl.train.rows import to_row
        >>> from cleaner_rl.trajectory import Key, StopReason, Trajectory, Turn, token_span
        >>> answer = Turn(token_span("2", [7], logprobs=[-0.5]))
        >>> rollout = Trajectory(token_span("1 + 1?", [3, 4]), (answer,), Key("run", 1, "sum"), reward=1.0)
        >>> row = to_row(rollout)
        >>> row.prompt_ids.tolist(), row.response_ids.tolist(), row.loss_mask.tolist(), row.logprobs.tolist()
        ([3, 4], [7], [True], [-0.5])
    """
    made = row_or_exclusion(trajectory, logprobs)
    return made if isinstance(made, TrainRow) else None


def exclusion(trajectory: Graded, logprobs: GraftLogprobs = GraftLogprobs.RESCORED) -> Exclusion | None:
    """Return why the trajectory gives no row; None if it gives one."""
    made = row_or_exclusion(trajectory, logprobs)
    return made if isinstance(made, Exclusion) else None


def row_or_exclusion(trajectory: Graded, choice: GraftLogprobs = GraftLogprobs.RESCORED) -> TrainRow | Exclusion:
    """Return the trajectory as a row, or why it gives none."""
    if trajectory.stop_reason in (StopReason.DROPPED, StopReason.TIME_LIMIT):
        return Exclusion.LEFT_OUT
    if not trajectory.usable or trajectory.reward is None:
        return Exclusion.FAULT
    length = len(trajectory.prompt)
    mask, logprobs = trajectory.loss_mask()[length:], _logprobs(trajectory, choice)
    if not mask.any() or np.isnan(logprobs[mask]).any():
        return Exclusion.FAULT
    versions = _versions(trajectory)
    return TrainRow(
        key=trajectory.key,
        prompt_ids=trajectory.prompt.ids,
        response_ids=trajectory.ids()[length:],
        loss_mask=mask,
        logprobs=logprobs,
        logprob_source=_source(trajectory, choice),
        reward=trajectory.reward,
        versions=(min(versions), max(versions)),
    )


def _logprobs(trajectory: Graded, choice: GraftLogprobs) -> Floats:
    sampled = choice is GraftLogprobs.SAMPLED
    found = trajectory.behaviour_logprobs() if sampled else trajectory.logprobs()
    return found[len(trajectory.prompt) :]


def _source(trajectory: Graded, choice: GraftLogprobs) -> LogprobSource:
    moved = any(placed.moved and placed.owner.sampled for placed in trajectory.placed())
    return LogprobSource.RESCORED if moved and choice is GraftLogprobs.RESCORED else LogprobSource.SAMPLED


def _versions(trajectory: Graded) -> list[int]:
    """Return the weights that sampled or scored its tokens; 0 if the engine didn't say."""
    scores = [scores for turn in trajectory.turns for span in turn.spans() for scores in (span.sampled, span.rescored)]
    return [scores.version for scores in scores if scores is not None and scores.version is not None] or [0]

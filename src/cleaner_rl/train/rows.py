"""Turns a finished trajectory into the columns that verl trains on; imports nothing of verl."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace

import numpy as np

from cleaner_rl.train.recipe.enums import GraftLogprobs
from cleaner_rl.train.recipe.settings import Recipe
from cleaner_rl.trajectory import TokenSpan, Trajectory

Graded = Trajectory[TokenSpan]

SOLVED = "solved"
"""The column of a row's correctness. Under verl's own name, "acc", every absent rollout would count as wrong."""


@dataclass(frozen=True, slots=True)
class TrainRow:
    """Holds one trajectory as verl's columns."""

    prompt_ids: list[int]
    response_ids: list[int]
    response_mask: list[int]
    logprobs: list[float]
    reward: float
    versions: tuple[int, int]
    """The oldest and the newest weights that sampled or scored it."""
    packed: bytes
    """The trajectory itself, for the sampler and the store."""


def to_row(trajectory: Graded, recipe: Recipe) -> TrainRow | None:
    """Return the trajectory as a row; None if it must not be trained on."""
    length = len(trajectory.prompt)
    if not trajectory.usable or trajectory.reward is None or len(trajectory) == length:
        return None
    mask = trajectory.loss_mask()[length:]
    logprobs = rollout_logprobs(trajectory, recipe)[length:]
    if not mask.any() or np.isnan(logprobs[mask]).any():
        return None
    if not recipe.update.learn_failed:
        mask &= ~_failed(trajectory)[length:]
    shaped = shape(trajectory, recipe)
    versions = _versions(shaped)
    assert shaped.reward is not None
    return TrainRow(
        prompt_ids=trajectory.prompt.ids.tolist(),
        response_ids=trajectory.ids()[length:].tolist(),
        response_mask=mask.astype(int).tolist(),
        logprobs=logprobs.tolist(),
        reward=shaped.reward,
        versions=(min(versions), max(versions)),
        packed=pack(shaped),
    )


def rollout_logprobs(trajectory: Graded, recipe: Recipe) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Return the log-probs that verl takes for the rollout's, by `purify.graft_logprobs`."""
    if recipe.purify.graft_logprobs is GraftLogprobs.SAMPLED:
        return trajectory.behaviour_logprobs()
    return trajectory.logprobs()


def _failed(trajectory: Graded) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Mark the tokens of turns whose call failed."""
    turns = trajectory.turns
    return np.concatenate(
        [np.full(len(placed.span), placed.turn >= 0 and turns[placed.turn].failed) for placed in trajectory.placed()]
    )


def shape(trajectory: Graded, recipe: Recipe) -> Graded:
    """Return the trajectory with DAPO's soft penalty on a response that reaches into the overlong buffer."""
    buffer, most = recipe.update.overlong_buffer, recipe.budget.response_tokens
    beyond = len(trajectory) - len(trajectory.prompt) - (most - buffer)
    if buffer == 0 or beyond <= 0 or trajectory.reward is None:
        return trajectory
    penalty = recipe.update.overlong_penalty * beyond / buffer
    info = replace(trajectory.info, overlong=penalty)
    return replace(trajectory, reward=trajectory.reward - penalty, info=info)


def pack(trajectory: Graded) -> bytes:
    """Serialize a trajectory for our own processes."""
    return pickle.dumps(trajectory, pickle.HIGHEST_PROTOCOL)


def unpack(packed: bytes) -> Graded:
    """Read what `pack` wrote."""
    trajectory = pickle.loads(packed)
    assert isinstance(trajectory, Trajectory)
    return trajectory


def _versions(trajectory: Graded) -> list[int]:
    """Return the weights that sampled or scored its tokens; 0 if the engine didn't say."""
    scores = [scores for turn in trajectory.turns for span in turn.spans() for scores in (span.sampled, span.rescored)]
    return [scores.version for scores in scores if scores is not None and scores.version is not None] or [0]

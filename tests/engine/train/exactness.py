"""How far stored log-probs are from those of a model that plain transformers runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cleaner_rl.train.preflight.exactness import moved_tokens
from cleaner_rl.trajectory import Floats, TokenSpan, Trajectory

EXACT = 1e-5
"""At most 1.6e-6 was seen in the smallest world."""


def distances(one: Floats, other: Floats) -> Floats:
    """How far log-probs are apart: as they are down to -1, and in proportion below, where float32 has fewer digits."""
    apart: Floats = np.abs(one - other) / np.maximum(1, np.abs(other))
    return apart


def actor_logprobs(model: Path, trajectories: Iterable[Trajectory[TokenSpan]]) -> list[Floats]:
    """The log-prob of each token after all before it, fp32; NaN for the first."""
    import torch
    from transformers import AutoModelForCausalLM

    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    found = []
    for trajectory in trajectories:
        ids = torch.from_numpy(trajectory.ids().astype(np.int64))
        with torch.no_grad():
            logits = network(ids[None]).logits[0, :-1]
        scores = torch.log_softmax(logits, -1).gather(1, ids[1:, None])[:, 0]
        found.append(np.concatenate([np.full(1, np.nan), scores.numpy()]).astype(np.float32))
    return found


@dataclass(frozen=True)
class Differences:
    """The largest distances from the actor's log-probs, over many trajectories."""

    trajectories: int
    moved_tokens: int
    clean: float
    """Of all sampled tokens, with those log-probs that the trainer was given."""
    moved_as_sampled: float
    """Of moved tokens, if nobody had re-scored them."""


def differences(model: Path, trajectories: Sequence[Trajectory[TokenSpan]]) -> Differences:
    """How far the log-probs of these trajectories are from what the model itself gives."""
    clean = as_sampled = 0.0
    tokens = 0
    for trajectory, actor in zip(trajectories, actor_logprobs(model, trajectories), strict=True):
        mask, shifted = trajectory.loss_mask(), moved_tokens(trajectory)
        clean = max(clean, float(distances(trajectory.logprobs(), actor)[mask].max()))
        if shifted.any():
            tokens += int(shifted.sum())
            as_sampled = max(as_sampled, float(distances(trajectory.behaviour_logprobs(), actor)[shifted].max()))
    return Differences(len(trajectories), tokens, clean, as_sampled)

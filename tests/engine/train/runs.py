"""Small runs of `cleaner train` on the real stack, each a cut of `recipes/tiny-cpu.yaml`, and what they leave."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.training import train
from cleaner_rl.train.preflight.witness import FOLDER
from cleaner_rl.trajectory import Phase, TokenSpan, Trajectory
from cleaner_rl.trajectory.store import read

SECONDS = 1_500
"""A run takes one or two minutes on a quiet machine of two cores; imports in a dozen processes are most of it."""
CUT = (
    *("budget.prompt_tokens=256", "batch.prompts=4", "batch.mini_batch=4", "batch.rollouts=4"),
    *(
        "verl.actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8",
        "roc.sample=8",
        "roc.min_positive=1",
        "roc.min_negative=1",
    ),
    "verl.actor_rollout_ref.model.external_lib=tests.engine.train.witness",
)


def cleaner_train(world: Path, folder: Path, settings: Sequence[str]) -> Path:
    """Train, and return the run's folder."""
    return train(world, folder, (*CUT, *settings), SECONDS, {FOLDER: str(folder)})


def drawn(run: Path, phase: Phase = Phase.TRAINING) -> list[Trajectory[TokenSpan]]:
    found = [each for each in read(run / "trajectories", phase) if each.key.run == run.name]
    assert found
    assert all(isinstance(each.prompt, TokenSpan) for each in found)
    return found  # type: ignore[return-value]


def metrics(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def stored(trajectory: Trajectory[TokenSpan]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A trajectory's ids, and the loss mask of its response."""
    mask = trajectory.loss_mask()[len(trajectory.prompt) :]
    return tuple(trajectory.ids().tolist()), tuple(mask.astype(int).tolist())

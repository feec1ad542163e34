"""A run as a recipe: what all arms share, what the regime says, and what the arm changes.

The budget of calls is the regime's for every arm: a history may hold so many calls and an answer. A repaired call
counts once, like any; what its lookahead sampled counts in tokens and in time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.lab.arms import ARMS, REAL_STEPS, STEPS, TUNING, TUNING_STEPS, Arm
from benchmarks.lab.worlds import REAL, World, lab_folder
from cleaner_rl.train import Recipe, to_recipe

EVALUATE_EVERY = 5
SAVE_EVERY = 5

SHARED: Mapping[str, Any] = {
    "budget": {"prompt_tokens": 96, "response_tokens": 256, "lookahead_tokens": 256},
    "batch": {"prompts": 16, "mini_batch": 8, "rollouts": 8, "micro_batch": 8, "dynamic_sampling": False},
    "update": {"lr": 3e-4, "warmup_steps": 0, "overlong_buffer": 0},
    "purify": {"attempts": 3, "threshold": 0.5},
    "sandbox": {"packages": ["kit"], "cpu_seconds": 0.1, "memory_mb": 256},
    "faults": {"stall_minutes": 5},
    "device": {"kind": "cpu", "per_node": 1, "workers": 1},
    # In float32 the engine's log-probs are the trainer's to 1e-5: asking the trainer again would cost a forward pass.
    "verl": {"algorithm.rollout_correction.bypass_mode": True},
}

IN_PLACE: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    # Its words are tokens where the tiny model's phrases are; a quarter of the rollouts costs 30 times as much a step.
    REAL: {
        "budget": {"prompt_tokens": 192, "response_tokens": 448, "lookahead_tokens": 448},
        "batch": {"prompts": 4, "mini_batch": 2, "rollouts": 8, "micro_batch": 2},
        "update": {"lr": 3e-5},
        "faults": {"stall_minutes": 15},
    }
}
"""What a place changes for all of its arms."""


@dataclass(frozen=True, slots=True, order=True)
class Run:
    """One arm in one regime with one seed."""

    regime: str
    arm: str
    seed: int

    @property
    def name(self) -> str:
        """Of its folder and of its file of results."""
        return f"{self.regime}-{self.arm}-{self.seed}"

    @property
    def steps(self) -> int:
        """How long it goes on."""
        if self.regime == REAL:
            return REAL_STEPS
        return TUNING_STEPS if ARMS[self.arm] in TUNING else STEPS


def recipe_of(run: Run, world: World, rate: float, steps: int, changes: Mapping[str, Any] | None = None) -> Recipe:
    """The recipe of a run. `rate` is DAPO's learning rate; `changes` are laid over everything, for a trial."""
    arm: Arm = ARMS[run.arm]
    values: dict[str, Any] = {
        "name": run.name,
        "method": arm.method,
        "seed": run.seed + 1,
        "model": {"path": str(world.folder / "model"), "dtype": "float32"},
        "tasks": {
            "train": [str(world.folder / "train.parquet")],
            "held_out": [str(world.held_out)],
            "prompt": str(world.folder / "prompt.toml"),
        },
        "run": {
            "steps": steps,
            "epochs": 10,  # more than any arm draws, refilled groups included
            "save_every": SAVE_EVERY,
            "keep_checkpoints": 0,  # recovery and room are measured of models along the way
            "evaluate_every": EVALUATE_EVERY,
            "folder": str(lab_folder()),
            "loggers": ["console", "file"],
        },
    }
    own: dict[str, dict[str, object]] = {
        "budget": {"turns": world.regime.calls + 1},
        "update": {"lr": rate},
        "sandbox": {"site": str(world.folder / "site")},
    }
    return to_recipe(_laid(values, SHARED, own, IN_PLACE.get(run.regime, {}), arm.settings, changes or {}))


def _laid(values: Mapping[str, Any], *layers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Sections over sections, the later ones last."""
    result = dict(values)
    for layer in layers:
        for section, settings in layer.items():
            result[section] = {**result.get(section, {}), **settings}
    return result

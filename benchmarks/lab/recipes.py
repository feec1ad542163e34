"""Builds the recipe of a run: the settings that all methods share, those of the environment and those of the method.

Every method has the environment's budget of calls. A repaired call counts once, like any other; the tokens and the time
of its lookahead count too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.lab.environments import REAL, ToyEnvironment, lab_folder
from benchmarks.lab.methods import METHODS, REAL_STEPS, STEPS, TUNING, TUNING_STEPS, LabMethod
from cleaner_rl.train import Recipe, to_recipe

EVALUATE_EVERY = 5
SAVE_EVERY = 5

RATE = "actor_rollout_ref.actor.optim.lr"
MICRO_BATCH = "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu"
ON_CPU: Mapping[str, object] = {
    "trainer.device": "cpu",
    "trainer.n_gpus_per_node": 1,
    "actor_rollout_ref.rollout.dtype": "float32",
    "actor_rollout_ref.rollout.agent.num_workers": 1,
    "actor_rollout_ref.actor.optim.lr_warmup_steps": 0,
}
"""One process trains, one runs rollouts; the learning rate is there from the first step."""

SHARED: Mapping[str, Any] = {
    "budget": {"prompt_tokens": 96, "response_tokens": 256, "lookahead_tokens": 256, "overlong_buffer": 0},
    "batch": {"prompts": 16, "mini_batch": 8, "rollouts": 8, "dynamic_sampling": False},
    # All was hindsight's default, too, when the kept runs ran.
    "purify": {"attempts": 3, "threshold": 0.5, "scope": "all"},
    "sandbox": {"cpu_seconds": 0.1, "memory_mb": 256},
    "faults": {"stall_minutes": 5},
    "verl": {
        **ON_CPU,
        RATE: 3e-4,
        MICRO_BATCH: 8,
        # In float32 the engine's log-probs are the trainer's to 1e-5: to ask the trainer would cost a forward pass.
        "algorithm.rollout_correction.bypass_mode": True,
    },
}

IN_PLACE: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    # Its tokens are words, the toy model's are phrases: a quarter of the rollouts takes 30 times as long per step.
    REAL: {
        "budget": {"prompt_tokens": 192, "response_tokens": 448, "lookahead_tokens": 448},
        "batch": {"prompts": 4, "mini_batch": 2, "rollouts": 8},
        "verl": {RATE: 3e-5, MICRO_BATCH: 2},
        "faults": {"stall_minutes": 15},
    }
}
"""Settings of an environment for all of its methods."""


@dataclass(frozen=True, slots=True, order=True)
class Run:
    """One run: a method in an environment with a seed."""

    regime: str
    method: str
    seed: int

    @property
    def name(self) -> str:
        """Name of its folder and of its results."""
        return f"{self.regime}-{self.method}-{self.seed}"

    @property
    def steps(self) -> int:
        """Number of steps."""
        if self.regime == REAL:
            return REAL_STEPS
        return TUNING_STEPS if METHODS[self.method] in TUNING else STEPS


def recipe_of(
    run: Run, environment: ToyEnvironment, rate: float, steps: int, changes: Mapping[str, Any] | None = None
) -> Recipe:
    """The recipe of a run. `rate` is GRPO's learning rate; `changes` override everything, for a trial."""
    method: LabMethod = METHODS[run.method]
    values: dict[str, Any] = {
        "name": run.name,
        "method": method.recipe_method,
        "seed": run.seed + 1,
        "model": {"path": str(environment.folder / "model")},
        "tasks": {
            "train": [str(environment.folder / "train.parquet")],
            "held_out": [str(environment.held_out)],
            "prompt": str(environment.folder / "prompt.toml"),
        },
        "run": {"steps": steps, "folder": str(lab_folder())},
        "verl": {
            "trainer.save_freq": SAVE_EVERY,
            "trainer.max_actor_ckpt_to_keep": None,  # recovery and the larger budget are measured on earlier models too
            "trainer.test_freq": EVALUATE_EVERY,
        },
    }
    own: dict[str, dict[str, object]] = {
        "budget": {"turns": environment.regime.calls + 1},
        "verl": {RATE: rate},
        "sandbox": {"environment": str(environment.folder / "kit")},
    }
    return to_recipe(laid(values, SHARED, own, IN_PLACE.get(run.regime, {}), method.settings, changes or {}))


def laid(values: Mapping[str, Any], *layers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Merge sections; later layers override earlier ones."""
    result = dict(values)
    for layer in layers:
        for section, settings in layer.items():
            result[section] = {**result.get(section, {}), **settings}
    return result

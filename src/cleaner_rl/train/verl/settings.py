"""Reads the settings that a recipe has in verl's words, as far as our own code depends on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

import msgspec

from cleaner_rl.train.recipe.settings import Positive, Recipe, RecipeError

MODEL, ACTOR, REF, ROLLOUT = (f"actor_rollout_ref.{part}" for part in ("model", "actor", "ref", "rollout"))
DTYPE = f"{ROLLOUT}.dtype"
ATTENTION = f"{MODEL}.override_config.attn_implementation"
LORA_RANK = f"{MODEL}.lora_rank"
TEMPLATE = "data.apply_chat_template_kwargs"
"""Options of the chat template, such as `enable_thinking: false`, which our own renderer takes too."""
MICRO_BATCH = f"{ACTOR}.ppo_micro_batch_size_per_gpu"
KEEP = "trainer.max_actor_ckpt_to_keep"
LEARNING_RATE = f"{ACTOR}.optim.lr"
OFFLOAD = f"{ACTOR}.fsdp_config.param_offload"
KL = f"{ACTOR}.kl_loss_coef"
USE_KL = f"{ACTOR}.use_kl_loss"


class Dtype(StrEnum):
    """The number format that a model is trained and served in."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


class DeviceKind(StrEnum):
    """What the model runs on."""

    GPU = "gpu"
    CPU = "cpu"


class TrainerMode(StrEnum):
    """How rollouts and updates alternate, by verl's own names."""

    SYNC = "sync"
    COLOCATE_ASYNC = "colocate_async"
    SEPARATE_ASYNC = "separate_async"


@dataclass(frozen=True, slots=True)
class Devices:
    """The machines, devices and engines of a run, with our defaults; `KEYS` has verl's names."""

    device: str = "cuda"
    nodes: Positive = 1
    per_node: Positive = 8
    """GPUs per machine; on CPUs, processes per machine."""
    mode: TrainerMode = TrainerMode.SYNC
    engine: str = "vllm"
    engine_nodes: Positive = 1
    """Machines for engines alone, in the mode `separate_async`."""
    tensor_parallel: Positive = 1
    workers: Positive = 8
    """Processes that run rollouts."""
    dtype: Dtype = Dtype.BFLOAT16
    micro_batch: Positive = 1
    """Sequences that a device computes at a time."""

    @property
    def count(self) -> int:
        """Return the devices that train."""
        return self.nodes * self.per_node

    @property
    def kind(self) -> DeviceKind:
        """Return what the model runs on."""
        return DeviceKind.CPU if self.device == "cpu" else DeviceKind.GPU


KEYS: Mapping[str, str] = {
    "device": "trainer.device",
    "nodes": "trainer.nnodes",
    "per_node": "trainer.n_gpus_per_node",
    "mode": "trainer.v1.trainer_mode",
    "engine": f"{ROLLOUT}.name",
    "engine_nodes": f"{ROLLOUT}.nnodes",
    "tensor_parallel": f"{ROLLOUT}.tensor_model_parallel_size",
    "workers": f"{ROLLOUT}.agent.num_workers",
    "dtype": DTYPE,
    "micro_batch": MICRO_BATCH,
}
"""verl's key of each field of `Devices`."""


def devices_of(recipe: Recipe) -> Devices:
    """Return the devices of a recipe; raise `RecipeError` for values that verl couldn't use."""
    own = own_settings(recipe)
    try:
        return msgspec.convert({name: own[key] for name, key in KEYS.items() if key in own}, Devices)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        name = where.rstrip("`")
        raise RecipeError(f"verl.{KEYS[name]} is {own[KEYS[name]]!r}: {what[:1].lower()}{what[1:]}") from None


def own_settings(recipe: Recipe) -> dict[str, object]:
    """Return what a recipe has in verl's words, by dotted keys without a leading "+"."""
    return {key.removeprefix("+"): value for key, value in flat(recipe.verl).items()}


def with_settings(recipe: Recipe, settings: Mapping[str, object]) -> Recipe:
    """Return the recipe with other settings of verl's, by dotted keys."""
    own = {key: value for key, value in flat(recipe.verl).items() if key.removeprefix("+") not in settings}
    return replace(recipe, verl={**own, **settings})


def template_of(recipe: Recipe) -> dict[str, object]:
    """Return the options of the chat template."""
    prefix = f"{TEMPLATE}."
    return {key.removeprefix(prefix): value for key, value in own_settings(recipe).items() if key.startswith(prefix)}


def flat(values: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Return nested settings by their dotted keys."""
    found: dict[str, object] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            plus = "+" if name.startswith("+") else ""
            found |= {f"{plus}{inner}": each for inner, each in flat(value, f"{name.removeprefix('+')}.").items()}
        else:
            found[name] = value
    return found

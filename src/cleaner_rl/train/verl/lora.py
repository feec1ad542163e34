"""Completes verl's LoRA: verl 0.9.1 loads this module in each process of a run that trains adapters.

- Checkpoints. verl writes the model in Hugging Face format under PEFT's names, adapters beside weights; transformers
  finds no weight of its own in it and starts with random ones. Here it is a plain model, its adapters merged. What a
  run resumes from stays as it is.
- Transfers on CPUs. verl rounds merged weights to bfloat16, and the engine would sample from another model than the one
  that is trained in float32. Here they keep their format.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from typing import Any

from verl.utils import fsdp_utils

_PREFIX, _BASE = "base_model.model.", ".base_layer"


def merged(weights: Mapping[str, Any], scale: float) -> dict[str, Any]:
    """Return the plain model's weights: those of PEFT's model under the plain names, with `scale` x B x A added."""
    plain = {}
    for name, weight in weights.items():
        if ".lora_" in name:
            continue
        layer = name.removesuffix(f"{_BASE}.weight")
        if layer != name:
            down, up = (weights[f"{layer}.lora_{part}.default.weight"].float() for part in "AB")
            weight = (weight.float() + scale * (up @ down)).to(weight.dtype)
        plain[name.removeprefix(_PREFIX).replace(_BASE, "")] = weight
    return plain


def _merging(full_weights: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    @functools.wraps(full_weights)
    def merging(model: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        weights = full_weights(model, *args, **kwargs)
        adapters = getattr(model, "peft_config", None)
        if not adapters or not weights:  # all ranks but the first get nothing
            return weights
        return merged(weights, adapters["default"].lora_alpha / adapters["default"].r)

    return merging


def _gathering(plain_names: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """verl rounds what is still sharded, so nothing is."""

    @functools.wraps(plain_names)
    def gathering(weights: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: weight.full_tensor() if hasattr(weight, "full_tensor") else weight
            for name, weight in plain_names(weights).items()
        }

    return gathering


# verl's engine and checkpoint manager, which are not imported yet, take these functions from here.
fsdp_utils.get_fsdp_full_state_dict = _merging(fsdp_utils.get_fsdp_full_state_dict)
if os.environ.get("VERL_PLATFORM", "").strip().lower() == "cpu":
    fsdp_utils.normalize_peft_param_name = _gathering(fsdp_utils.normalize_peft_param_name)

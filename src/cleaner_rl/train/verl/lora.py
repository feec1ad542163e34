"""Completes verl's LoRA: verl 0.9.1 loads this module in each process of a run that trains adapters.

- Checkpoints. verl writes the model in Hugging Face format under PEFT's names, adapters beside weights; transformers
  finds no weight of its own in it and starts with random ones. Here it is a plain model, its adapters merged. What a
  run resumes from stays as it is.
- Transfers. verl rounds merged weights to bfloat16, and the engine would sample from another model than the one that is
  trained in float32 or float16. Here they keep their format, as they do without LoRA.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from verl.utils import fsdp_utils
from verl.utils.device import get_device_id

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


class _Sharded:
    """Stands for a sharded weight: verl rounds those, and copies all others as they are, one by one."""

    def __init__(self, weight: Any) -> None:
        self._weight = weight

    def detach(self) -> _Sharded:
        return self

    def clone(self) -> Any:
        # A copy on one rank too: the weights are unmerged before the last of them is sent.
        return self._weight.to(get_device_id()).full_tensor().detach().clone()


def _unrounded(plain_names: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    @functools.wraps(plain_names)
    def unrounded(weights: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: _Sharded(weight) if hasattr(weight, "full_tensor") else weight
            for name, weight in plain_names(weights).items()
        }

    return unrounded


# verl's engine and checkpoint manager, which are not imported yet, take these functions from here.
fsdp_utils.get_fsdp_full_state_dict = _merging(fsdp_utils.get_fsdp_full_state_dict)
fsdp_utils.normalize_peft_param_name = _unrounded(fsdp_utils.normalize_peft_param_name)

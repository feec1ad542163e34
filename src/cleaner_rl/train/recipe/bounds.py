"""The range of each number in a recipe: a value outside it is refused in words, before anything starts.

Without these, verl or vLLM would fail on the value minutes later, or train with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import NamedTuple


class Range(NamedTuple):
    """The values that a setting may have, and how they are described."""

    holds: Callable[[float], bool]
    words: str


POSITIVE = Range(lambda value: value > 0, "a number above 0")
NOT_NEGATIVE = Range(lambda value: value >= 0, "0 or more")
ONE_OR_MORE = Range(lambda value: value >= 1, "1 or more")
SHARE = Range(lambda value: 0 <= value <= 1, "from 0 to 1")
SHARE_ABOVE_0 = Range(lambda value: 0 < value <= 1, "above 0 and at most 1")

RANGES: Mapping[str, Range] = {
    "model.lora.rank": ONE_OR_MORE,
    "model.lora.alpha": ONE_OR_MORE,
    "budget.prompt_tokens": ONE_OR_MORE,
    "budget.response_tokens": ONE_OR_MORE,
    "budget.turns": ONE_OR_MORE,
    "budget.evaluation_turns": NOT_NEGATIVE,
    "budget.lookahead_tokens": NOT_NEGATIVE,
    "budget.seconds": NOT_NEGATIVE,
    "sampling.temperature": POSITIVE,
    "sampling.top_p": SHARE_ABOVE_0,
    "batch.prompts": ONE_OR_MORE,
    "batch.mini_batch": ONE_OR_MORE,
    "batch.rollouts": Range(lambda value: value >= 2, "2 or more: the advantage is relative to the group"),
    "batch.micro_batch": ONE_OR_MORE,
    "update.lr": POSITIVE,
    "update.warmup_steps": NOT_NEGATIVE,
    "update.clip_low": SHARE,
    "update.clip_high": NOT_NEGATIVE,
    "update.clip_c": Range(lambda value: value > 1, "a number above 1"),
    "update.kl": NOT_NEGATIVE,
    "update.correction_threshold": POSITIVE,
    "update.overlong_buffer": NOT_NEGATIVE,
    "update.overlong_penalty": NOT_NEGATIVE,
    "rescue.attempts": ONE_OR_MORE,
    "rescue.share": SHARE_ABOVE_0,
    "faults.min_rollouts": ONE_OR_MORE,
    "faults.max_share": SHARE,
    "faults.stall_minutes": POSITIVE,
    "sandbox.slots": NOT_NEGATIVE,
    "sandbox.cpu_seconds": POSITIVE,
    "sandbox.memory_mb": ONE_OR_MORE,
    "device.nodes": ONE_OR_MORE,
    "device.engine_nodes": ONE_OR_MORE,
    "device.per_node": ONE_OR_MORE,
    "device.tensor_parallel": ONE_OR_MORE,
    "device.workers": ONE_OR_MORE,
    "device.memory_share": SHARE_ABOVE_0,
    "run.steps": NOT_NEGATIVE,
    "run.epochs": ONE_OR_MORE,
    "run.save_every": NOT_NEGATIVE,
    "run.evaluate_every": ONE_OR_MORE,
    "run.evaluation_samples": ONE_OR_MORE,
    "run.evaluation_temperature": POSITIVE,
    "run.evaluation_top_p": SHARE_ABOVE_0,
    "cold_start.epochs": ONE_OR_MORE,
    "cold_start.lr": POSITIVE,
    "cold_start.warmup": SHARE,
    "cold_start.batch": ONE_OR_MORE,
    "cold_start.micro_batch": ONE_OR_MORE,
    "cold_start.max_tokens": ONE_OR_MORE,
    "stages.steps": ONE_OR_MORE,
    "stages.response_tokens": NOT_NEGATIVE,
    "stages.min_pass_rate": SHARE,
    "stages.max_pass_rate": SHARE,
}
"""Settings of `purify` and `roc` are checked by the classes that they become."""


def out_of_range(settings: object, where: str = "") -> str:
    """Say which setting is out of its range, and what it may be; empty if none is."""
    assert is_dataclass(settings)
    for each in fields(settings):
        value, name = getattr(settings, each.name), f"{where}{each.name}"
        values = value if isinstance(value, list) else [value]
        for held in values:
            if is_dataclass(held):
                if found := out_of_range(held, f"{name}."):
                    return found
            elif name in RANGES and not (isfinite(held) and RANGES[name].holds(held)):
                return f"{name} is {held}; it must be {RANGES[name].words}"
    return ""

"""What a vLLM server says of its load, from the text of its `/metrics`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cleaner_rl.rollout.balance.scheduler import Load

_USED = re.compile(r"^vllm:kv_cache_usage_perc(?:\{[^}]*\})? (\S+)$", re.MULTILINE)
_CACHE = re.compile(r"^vllm:cache_config_info\{([^}]*)\}", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Gauge:
    """A replica's KV cache in tokens, and its load."""

    room: int
    load: Load


def read_vllm(text: str) -> Gauge | None:
    """Read vLLM's metrics; return None if the text isn't vLLM's, or lacks one of the figures."""
    cache = [dict(_LABEL.findall(labels)) for labels in _CACHE.findall(text)]
    used = [float(value) for value in _USED.findall(text)]
    # With data parallel engines behind one address there is a line for each.
    blocks = [int(each["num_gpu_blocks"]) * int(each["block_size"]) for each in cache if _whole(each)]
    if not (blocks and used):
        return None
    room = sum(blocks)
    return Gauge(room, Load(round(room * sum(used) / len(used))))


def _whole(labels: dict[str, str]) -> bool:
    return labels.get("num_gpu_blocks", "").isdecimal() and labels.get("block_size", "").isdecimal()

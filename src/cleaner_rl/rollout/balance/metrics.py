"""What a vLLM server says of its load, from the text of its `/metrics`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cleaner_rl.rollout.balance.scheduler import Load

_USED = re.compile(r"^vllm:kv_cache_usage_perc(?:\{[^}]*\})? (\S+)$", re.MULTILINE)
_RUNNING = re.compile(r"^vllm:num_requests_running(?:\{[^}]*\})? (\S+)$", re.MULTILINE)
_WAITING = re.compile(r"^vllm:num_requests_waiting(?:\{[^}]*\})? (\S+)$", re.MULTILINE)
_CACHE = re.compile(r"^vllm:cache_config_info\{([^}]*)\}", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Gauge:
    """A replica's room in tokens of KV cache, and its load."""

    room: int
    load: Load


def read_vllm(text: str) -> Gauge | None:
    """None if the text isn't vLLM's, or lacks one of the figures."""
    cache = [dict(_LABEL.findall(labels)) for labels in _CACHE.findall(text)]
    used, running, waiting = (_values(pattern, text) for pattern in (_USED, _RUNNING, _WAITING))
    # With data parallel engines behind one address there is a line for each.
    blocks = [int(each["num_gpu_blocks"]) * int(each["block_size"]) for each in cache if _whole(each)]
    if not (blocks and used and running and waiting):
        return None
    room = sum(blocks)
    return Gauge(room, Load(round(room * sum(used) / len(used)), round(sum(running)), round(sum(waiting))))


def _values(pattern: re.Pattern[str], text: str) -> list[float]:
    return [float(value) for value in pattern.findall(text)]


def _whole(labels: dict[str, str]) -> bool:
    return labels.get("num_gpu_blocks", "").isdecimal() and labels.get("block_size", "").isdecimal()

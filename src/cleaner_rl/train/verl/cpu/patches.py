"""Replaces what verl 0.9.1 assumes of an accelerator, so that it runs on a CPU.

Each patch says what would fail without it. They are applied when verl is imported with `VERL_PLATFORM=cpu` (see
`cleaner_rl.train.verl.plugin`), before any of verl's workers exist, and change nothing on other platforms.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import ray
import torch
from verl.utils import distributed


def apply() -> None:
    """Apply all patches; a second call changes nothing."""
    if getattr(distributed, "_cleaner_patched", False):
        return
    distributed._cleaner_patched = True
    # verl registers its training engines for "cuda" and "npu"; the same classes run here.
    os.environ.setdefault("VERL_ENGINE_DEVICE", "cuda")
    # torch refuses "cpu:gloo,cpu:gloo", which verl builds from the platform's names.
    distributed.initialize_global_process_group_ray = _over_gloo(distributed.initialize_global_process_group_ray)
    distributed.initialize_global_process_group = _with_plain_backend(distributed.initialize_global_process_group)
    # The reference model's offload policy pins memory, which only a CUDA build of torch can do.
    torch.Tensor.pin_memory = lambda self, *_args, **_kwargs: self
    # verl names the socket that hands weights to vLLM by Ray's job: the first in each of two clusters on one machine.
    ray.runtime_context.RuntimeContext.get_job_id = _with_cluster(ray.runtime_context.RuntimeContext.get_job_id)


def _over_gloo(initialize: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(initialize)
    def over_gloo(timeout_second: float | None = None, backend: str | None = None) -> Any:
        return initialize(timeout_second, backend or "cpu:gloo")

    return over_gloo


def _with_plain_backend(initialize: Callable[..., Any]) -> Callable[..., Any]:
    """Give torch the plain backend during the call, because the SFT trainer's start takes none as an argument."""

    @functools.wraps(initialize)
    def with_plain_backend(timeout_second: float = 36000) -> Any:
        init = torch.distributed.init_process_group
        torch.distributed.init_process_group = lambda backend, **kwargs: init(  # noqa: ARG005
            backend="cpu:gloo", **kwargs
        )
        try:
            return initialize(timeout_second)
        finally:
            torch.distributed.init_process_group = init

    return with_plain_backend


def _with_cluster(get_job_id: Callable[[Any], str]) -> Callable[[Any], str]:
    @functools.wraps(get_job_id)
    def with_cluster(self: Any) -> str:
        return f"{get_job_id(self)}-{self.gcs_address.rpartition(':')[2]}"

    return with_cluster

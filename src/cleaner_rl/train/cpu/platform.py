"""verl's platform for machines without an accelerator.

verl asks its platform for every device matter (names, memory, random state, Ray's resource). `PlatformCPU` answers for
the processor, and `CpuDevice` stands where verl expects `torch.cuda`: what `torch.cpu` has is its own, memory is that
of the process, and what has no meaning here does nothing.

Limits: one device per process; Ray knows it under the name "GPU", because verl counts only GPUs and NPUs when it places
workers, so Ray has to be started with `num_gpus` of the wished number of ranks.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import psutil
import torch
from verl.plugin.platform import PlatformRegistry
from verl.plugin.platform.platform_base import PlatformBase

NAME = "cpu"


class CpuDevice(ModuleType):
    """The module `torch.cpu`, with the questions about memory and random state that verl puts to `torch.cuda`."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)

    @staticmethod
    def memory_allocated(device: object = None) -> int:  # noqa: ARG004 (torch.cuda's signature)
        """What the process holds now, in bytes."""
        return int(psutil.Process().memory_info().rss)

    @staticmethod
    def max_memory_allocated(device: object = None) -> int:  # noqa: ARG004
        """The most the process ever held, in bytes."""
        # The kernel updates both counters lazily.
        return max(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, CpuDevice.memory_allocated())

    memory_reserved = memory_allocated
    max_memory_reserved = max_memory_allocated

    @staticmethod
    def mem_get_info(device: object = None) -> tuple[int, int]:  # noqa: ARG004
        """Free and total memory of the machine, in bytes."""
        memory = psutil.virtual_memory()
        return int(memory.available), int(memory.total)

    @staticmethod
    def get_device_name(device: object = None) -> str:  # noqa: ARG004
        """The device's name, for verl's estimate of its peak speed (unknown, hence without a figure)."""
        return NAME

    @staticmethod
    def get_rng_state(device: object = None) -> torch.Tensor:  # noqa: ARG004
        """The processor's random state; it is saved with each checkpoint."""
        return torch.get_rng_state()

    @staticmethod
    def set_rng_state(state: torch.Tensor, device: object = None) -> None:  # noqa: ARG004
        """Put a saved random state back."""
        torch.set_rng_state(state)

    @staticmethod
    def nothing(*_args: object, **_kwargs: object) -> None:
        """For what has no meaning on a processor."""

    empty_cache = ipc_collect = reset_peak_memory_stats = reset_accumulated_memory_stats = nothing
    set_per_process_memory_fraction = set_device = synchronize = nothing


_DEVICE = CpuDevice("cleaner_rl.train.cpu.device")


class PlatformCPU(PlatformBase):  # type: ignore[misc]
    """One processor, seen by verl as an accelerator."""

    @property
    def device_name(self) -> str:
        """The device type, as torch writes it."""
        return NAME

    @property
    def vendor_name(self) -> str:
        """Part of the key under which verl looks for vendors' own engines; there are none."""
        return NAME

    @property
    def device_module(self) -> ModuleType:
        """What stands for `torch.cuda`."""
        return _DEVICE

    def is_available(self) -> bool:
        """There is always a processor."""
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:  # noqa: ARG002
        """Never chosen by itself: `VERL_PLATFORM=cpu` asks for it."""
        return False

    def current_device(self) -> Any:
        """A device rather than an index: `torch.device("cpu:0")` and `torch.device("cpu")` aren't equal."""
        return torch.device(NAME)

    def device_count(self) -> int:
        """One per process."""
        return 1

    def set_device(self, device_index: int) -> None:
        """Nothing to choose from."""

    def synchronize(self, device_index: int | None = None) -> None:
        """A processor is never ahead of the program."""

    def manual_seed(self, seed: int) -> None:
        """Seed torch."""
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        """Seed torch."""
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        """The system's allocator has no settings."""

    def empty_cache(self) -> None:
        """There is no cache of freed memory."""

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:  # noqa: ARG002
        """A processor has no compute capability."""
        return None, None

    def communication_backend_name(self) -> str:
        """Collectives run over gloo."""
        return "gloo"

    def visible_devices_envvar(self) -> str:
        """A variable that nothing reads: there is nothing to hide."""
        return "CPU_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:  # noqa: ARG002
        """No profiler's ranges."""
        yield

    def profiler_start(self) -> None:
        """No device profiler."""

    def profiler_stop(self) -> None:
        """No device profiler."""

    def ray_resource_name(self) -> str:
        """verl counts GPUs and NPUs alone (see the module's limits)."""
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        """Ray may do with CUDA's variables what it likes."""
        return []

    def is_ipc_supported(self) -> bool:
        """Weights go through shared memory."""
        return False

    def cudart(self) -> Any:
        """No CUDA runtime."""
        return None


def register() -> None:
    """Make the platform known to verl under the name `cpu`."""
    PlatformRegistry.register(platform=NAME)(PlatformCPU)

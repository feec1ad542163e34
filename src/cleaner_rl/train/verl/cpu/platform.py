"""Defines verl's platform for machines without an accelerator.

verl asks its platform for everything about a device (names, memory, random state, Ray's resource). `PlatformCPU`
answers for the CPU, and `CpuDevice` replaces `torch.cuda`: it has what `torch.cpu` has, its memory is that of the
process, and what has no meaning on a CPU does nothing.

Limits: one device per process. Ray knows it as "GPU", because verl counts only GPUs and NPUs when it places workers, so
Ray has to be started with as many `num_gpus` as there are ranks.
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
    """Extends `torch.cpu` by the functions for memory and random state that verl calls on `torch.cuda`."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)

    @staticmethod
    def memory_allocated(device: object = None) -> int:  # noqa: ARG004 (torch.cuda's signature)
        """Return the memory that the process holds now, in bytes."""
        return int(psutil.Process().memory_info().rss)

    @staticmethod
    def max_memory_allocated(device: object = None) -> int:  # noqa: ARG004
        """Return the most memory that the process ever held, in bytes."""
        # The kernel updates both counters lazily.
        return max(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, CpuDevice.memory_allocated())

    memory_reserved = memory_allocated
    max_memory_reserved = max_memory_allocated

    @staticmethod
    def mem_get_info(device: object = None) -> tuple[int, int]:  # noqa: ARG004
        """Return the free and the total memory of the machine, in bytes."""
        memory = psutil.virtual_memory()
        return int(memory.available), int(memory.total)

    @staticmethod
    def get_device_name(device: object = None) -> str:  # noqa: ARG004
        """Return the device's name; verl has no peak speed for it, and so reports no utilization."""
        return NAME

    @staticmethod
    def get_rng_state(device: object = None) -> torch.Tensor:  # noqa: ARG004
        """Return the CPU's random state, which each checkpoint saves."""
        return torch.get_rng_state()

    @staticmethod
    def set_rng_state(state: torch.Tensor, device: object = None) -> None:  # noqa: ARG004
        """Restore a saved random state."""
        torch.set_rng_state(state)

    @staticmethod
    def nothing(*_args: object, **_kwargs: object) -> None:
        """Do nothing, in place of functions that have no meaning on a CPU."""

    empty_cache = ipc_collect = reset_peak_memory_stats = reset_accumulated_memory_stats = nothing
    set_per_process_memory_fraction = set_device = synchronize = nothing


_DEVICE = CpuDevice("cleaner_rl.train.verl.cpu.device")


class PlatformCPU(PlatformBase):  # type: ignore[misc]
    """Presents the CPU to verl as an accelerator."""

    @property
    def device_name(self) -> str:
        """The device type, as torch spells it."""
        return NAME

    @property
    def vendor_name(self) -> str:
        """Part of the key by which verl looks for a vendor's own engines; there are none."""
        return NAME

    @property
    def device_module(self) -> ModuleType:
        """The module that replaces `torch.cuda`."""
        return _DEVICE

    def is_available(self) -> bool:
        """Return True: a CPU is always available."""
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:  # noqa: ARG002
        """Return False: only `VERL_PLATFORM=cpu` selects this platform."""
        return False

    def current_device(self) -> Any:
        """Return a device, not an index: `torch.device("cpu:0")` and `torch.device("cpu")` aren't equal."""
        return torch.device(NAME)

    def device_count(self) -> int:
        """Return 1: there is one device per process."""
        return 1

    def set_device(self, device_index: int) -> None:
        """Do nothing: there is one device."""

    def synchronize(self, device_index: int | None = None) -> None:
        """Do nothing: a CPU computes synchronously."""

    def manual_seed(self, seed: int) -> None:
        """Seed torch."""
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        """Seed torch."""
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        """Do nothing: the system's allocator has no settings."""

    def empty_cache(self) -> None:
        """Do nothing: there is no cache of freed memory."""

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:  # noqa: ARG002
        """Return no compute capability."""
        return None, None

    def communication_backend_name(self) -> str:
        """Return the backend of collectives, gloo."""
        return "gloo"

    def visible_devices_envvar(self) -> str:
        """Return a variable that nothing reads."""
        return "CPU_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:  # noqa: ARG002
        """Do nothing: there is no device profiler."""
        yield

    def profiler_start(self) -> None:
        """Do nothing: there is no device profiler."""

    def profiler_stop(self) -> None:
        """Do nothing: there is no device profiler."""

    def ray_resource_name(self) -> str:
        """Return "GPU", because verl counts only GPUs and NPUs (see the module's limits)."""
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        """Return no variables: Ray may set CUDA's."""
        return []

    def is_ipc_supported(self) -> bool:
        """Return False: weights are handed over in shared memory."""
        return False

    def cudart(self) -> Any:
        """Return None: there is no CUDA runtime."""
        return None


def register() -> None:
    """Register the platform with verl under the name `cpu`."""
    PlatformRegistry.register(platform=NAME)(PlatformCPU)

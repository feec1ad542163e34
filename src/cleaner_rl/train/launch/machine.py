"""Checks that this machine has the cores and GPUs that verl asks Ray for; with fewer cores verl waits without end."""

from __future__ import annotations

import os
from importlib.util import find_spec

from cleaner_rl.train.recipe.settings import Recipe, RecipeError, run_folder
from cleaner_rl.train.verl.overrides import overrides
from cleaner_rl.train.verl.settings import DeviceKind, devices_of

CORES_PER_GPU = 3
"""Cores that verl reserves beside each GPU for the processes that share it."""
CORES_BESIDE = 2
"""Cores that verl's trainer and the queue's controller take."""
QUEUE = "transfer_queue.backend.SimpleStorage.num_data_storage_units"
RAY_CORES = "ray_kwargs.ray_init.num_cpus"


def check_machine(recipe: Recipe) -> None:
    """Raise `RecipeError` if this machine has too few cores or GPUs for a run on it alone."""
    devices = devices_of(recipe)
    if devices.kind is DeviceKind.CPU or devices.nodes > 1 or os.environ.get("RAY_ADDRESS"):
        return  # on CPUs Ray is told how many cores to count; a cluster knows its own machines
    import torch

    wanted, found = devices.per_node, torch.cuda.device_count()
    if find_spec("torch_npu") is None and found < wanted:  # verl also trains on NPUs, which only torch_npu counts
        raise RecipeError(
            f"verl.trainer.n_gpus_per_node is {wanted}, but torch sees {found} GPUs on this machine: change it, or "
            "train the toy model on CPUs (docs/train.md)"
        )
    check_cores(recipe, os.cpu_count() or 1)


def check_cores(recipe: Recipe, cores: int) -> None:
    """Raise `RecipeError` if Ray would count fewer cores than verl reserves."""
    gpus, settings = devices_of(recipe).per_node, overrides(recipe, run_folder(recipe))
    counted, units = settings.get(RAY_CORES) or cores, settings[QUEUE]
    assert isinstance(counted, int)
    assert isinstance(units, int)
    needed = CORES_PER_GPU * gpus + units + CORES_BESIDE
    if counted < needed:
        raise RecipeError(
            f"verl reserves {needed} cores for {gpus} GPUs, and Ray counts {counted} here, so the "
            f"run would wait without end: use a machine with more cores, or let Ray count more than there are with "
            f"--set verl.{RAY_CORES}={needed}"
        )

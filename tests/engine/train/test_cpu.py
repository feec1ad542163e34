"""verl's platform on a machine without an accelerator; what runs on it is in `test_training`."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.timeout(60)
def test_a_processor_is_a_platform() -> None:
    code = (
        "import torch, verl\n"
        "from verl.utils import device\n"
        "assert type(device.get_platform()).__name__ == 'PlatformCPU'\n"
        "assert device.get_device_name() == 'cpu' and device.get_resource_name() == 'GPU'\n"
        "module = device.get_torch_device()\n"
        "assert 0 < module.memory_allocated() and 0 < module.max_memory_allocated()\n"
        "module.empty_cache(), module.synchronize(), module.set_device(0)\n"
        "state = module.get_rng_state(); first = torch.rand(3); module.set_rng_state(state)\n"
        "assert torch.equal(torch.rand(3), first)\n"
        "import ray\n"
        "ray.init(num_cpus=1, include_dashboard=False, _node_ip_address='127.0.0.1')\n"
        "here = ray.get_runtime_context()\n"
        "job, port = here.get_job_id().split('-')\n"
        "assert job == here.worker.current_job_id.hex() and here.gcs_address.endswith(f':{port}')\n"
    )
    environment = {**os.environ, "VERL_PLATFORM": "cpu", "VERL_USE_EXTERNAL_MODULES": "cleaner_rl.train.verl.plugin"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=55)


@pytest.mark.timeout(60)
def test_other_platforms_are_left_alone() -> None:
    code = (
        "import torch, verl\n"
        "from verl.plugin.platform import PlatformRegistry\n"
        "from verl.utils import distributed\n"
        "assert 'cpu' not in PlatformRegistry.registered_names()\n"
        "assert not hasattr(distributed.initialize_global_process_group_ray, '__wrapped__')\n"
    )
    environment = {**os.environ, "VERL_USE_EXTERNAL_MODULES": "cleaner_rl.train.verl.plugin"}
    environment.pop("VERL_PLATFORM", None)
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=55)

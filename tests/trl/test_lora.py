"""LoRA by peft: rollouts are sampled from the model with its adapter, which alone is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cleaner_rl.trajectory import TokenSpan, Trajectory
from cleaner_rl.trajectory.store import read
from tests.trl.toy import distance, rollouts, settings, trained

pytestmark = pytest.mark.timeout(300)


def test_an_adapter_is_sampled_from_and_trained(toy: Any, tmp_path: Path) -> None:
    import torch
    from peft import LoraConfig

    adapter = LoraConfig(r=8, lora_alpha=16, target_modules=["c_attn", "c_fc", "c_proj"], task_type="CAUSAL_LM")
    before = {name: value.clone() for name, value in toy[3].state_dict().items()}
    with rollouts(toy, folder=tmp_path / "run") as made:
        trainer, seen = trained(toy, made, settings(tmp_path, learning_rate=1e-2), peft_config=adapter)

    # From the second step on the model without its adapter would give other log-probs.
    assert max(distance(*each) for each in seen) < 1e-5
    batch, known = seen[-1]
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
    attention = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
    with trainer.model.disable_adapter(), torch.no_grad():
        base = trainer._get_per_token_logps_and_entropies(trainer.model, ids, attention, known.shape[1])[0]
    assert distance(batch, base) > 1e-3
    frozen = trainer.model.get_base_model().state_dict()
    assert all(torch.equal(value, frozen[name]) for name, value in before.items() if name in frozen)
    stored: list[Trajectory[TokenSpan]] = list(read(tmp_path / "run" / "trajectories"))  # type: ignore[arg-type]
    assert len(stored) == 3 * 16
    assert any(each.edits for each in stored)

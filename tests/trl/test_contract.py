"""The adapter to TRL passes the contract of adapters to trainers, on TRL's own batch; our engine that of engines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from cleaner_rl.contracts.engines import EngineContract
from cleaner_rl.contracts.trainers import Rollout, Trained, TrainerContract
from cleaner_rl.rollout import Engine
from tests.trl.tiny import scored


@pytest.mark.timeout(300)
class TestTrl(TrainerContract):
    delta = 1e-4

    @pytest.fixture(autouse=True)
    def _in(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def train(self, groups: Sequence[Sequence[Rollout]]) -> Sequence[Sequence[Trained]]:
        from transformers import GPT2Config, GPT2LMHeadModel

        model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_embd=16, n_layer=1, n_head=1, n_positions=64))
        _, batch = scored(model, groups, self.folder, method="grpo")
        rows = []
        for place, advantage in enumerate(batch["advantages"].tolist()):
            prompt = batch["prompt_ids"][place][batch["prompt_mask"][place].bool()].tolist()
            there = batch["completion_mask"][place].bool()
            columns = [batch[name][place][there].tolist() for name in COLUMNS]
            rows.append(Trained([*prompt, *columns[0]], columns[1], columns[2], advantage))
        size = len(groups[0])
        return [rows[first : first + size] for first in range(0, len(rows), size)]


COLUMNS = ("completion_ids", "tool_mask", "sampling_per_token_logps")


@pytest.mark.timeout(300)
class TestTransformersEngine(EngineContract):
    prompts, too_long, tolerance = ((1, 2, 3), (4, 5), (6, 7, 8, 9)), [1] * 100, 1e-5

    def make(self) -> Engine:
        import torch
        from transformers import GPT2Config, GPT2LMHeadModel

        from cleaner_rl.rollout.engines import TransformersEngine

        torch.manual_seed(0)
        config = GPT2Config(vocab_size=256, n_embd=16, n_layer=1, n_head=1, n_positions=64)
        return TransformersEngine(GPT2LMHeadModel(config).eval())

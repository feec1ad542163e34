"""`examples/trl_gpu.py` as far as a CPU goes: its settings make a trainer that is taken, over a tiny model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from cleaner_rl.tasks import load_prompt
from cleaner_rl.train.trl.checks import check_groups, check_trainer
from tests.trl.tiny import tasks, tokenizer
from tests.trl.toy import EXAMPLES

NO_GPU = {"use_cpu": True, "bf16": False, "model_init_kwargs": None, "gradient_checkpointing": False}


@pytest.fixture
def example() -> Any:
    sys.path.insert(0, str(EXAMPLES))
    import trl_gpu

    return trl_gpu


def test_its_settings_are_trls_own(example: Any, tmp_path: Path) -> None:
    config = example.config(str(tmp_path), **NO_GPU)
    assert (config.use_vllm, config.vllm_mode, config.vllm_enable_sleep_mode) == (True, "colocate", True)
    # One prompt, the model's answer and the token that a score needs fit into vLLM's window.
    assert example.BUDGET.tokens < config.vllm_max_model_length
    # What a process is asked for at a time are whole groups.
    assert config.generation_batch_size == 64
    assert config.generation_batch_size % config.num_generations == 0


@pytest.mark.timeout(300)
def test_a_trainer_with_them_is_taken(example: Any, tmp_path: Path) -> None:
    from transformers import Qwen3Config, Qwen3ForCausalLM
    from trl import GRPOTrainer

    size = {"vocab_size": 256, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 32, "max_position_embeddings": 512}
    known = tokenizer(256)
    with example.rollouts(known, str(tmp_path)) as made:
        trainer = GRPOTrainer(
            model=Qwen3ForCausalLM(Qwen3Config(**size, **heads)),
            # There is no vLLM in this environment.
            args=example.config(str(tmp_path), **NO_GPU, use_vllm=False),
            processing_class=known,
            train_dataset=made.dataset(tasks(8)),
            eval_dataset=made.dataset(tasks(16)),
            rollout_func=made,
            reward_funcs=made.reward,
            peft_config=example.adapter(),
        )
        check_trainer(trainer)
        prompts = [row["prompt"] for row in next(iter(trainer.get_train_dataloader()))]
        check_groups(prompts, trainer.num_generations)
        assert len(prompts) == 64
        assert prompts[0][-1]["content"] in [load_prompt("stateless").messages(task)[-1].content for task in tasks(8)]
    trained = [name for name, value in trainer.model.named_parameters() if value.requires_grad]
    assert trained
    assert all("lora" in name for name in trained)

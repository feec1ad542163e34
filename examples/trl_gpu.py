"""GRPO with clean trajectories in TRL on one GPU of 24 GB: Qwen3-1.7B, LoRA, vLLM in the trainer's process.

It has been composed and checked on a CPU, and has not been run on a GPU: treat its memory settings as a first guess.
Run `pip install ./packages/cleaner-sandbox '.[trl]' 'trl[vllm]==1.16.0' peft` in a checkout, then
`python examples/trl_gpu.py [FOLDER]`. The sandbox runs on the same machine and needs four cores. `cleaner view FOLDER`
shows every rollout and its repairs.
"""

import sys

from cleaner_rl.rollout import RolloutBudget
from cleaner_rl.tasks import load_named
from cleaner_rl.train.trl import CleanerRollouts

MODEL, TASKS, HELD_OUT = "Qwen/Qwen3-1.7B", "dapo-math-17k", "aime24"
WINDOW = 6_144
BUDGET = RolloutBudget(turns=6, tokens=4_096)


def config(folder: str, **changes):
    """Return TRL's settings: 8 groups of 8 rollouts per step, two rows at a time in memory."""
    from trl import GRPOConfig

    settings = {
        "output_dir": folder,
        "num_generations": 8,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 32,
        "per_device_eval_batch_size": 16,
        "num_generations_eval": 1,
        "max_steps": 200,
        "learning_rate": 1e-5,
        "lr_scheduler_type": "constant",
        "epsilon_high": 0.28,
        "bf16": True,
        "gradient_checkpointing": True,
        "model_init_kwargs": {"dtype": "bfloat16"},
        "use_vllm": True,
        "vllm_mode": "colocate",
        "vllm_gpu_memory_utilization": 0.4,
        "vllm_max_model_length": WINDOW,
        "vllm_enable_sleep_mode": True,
        "eval_strategy": "steps",
        "eval_steps": 20,
        "save_steps": 20,
        "logging_steps": 1,
        "report_to": [],
    }
    return GRPOConfig(**settings | changes)


def adapter():
    """Return the adapter that is trained."""
    from peft import LoraConfig

    return LoraConfig(r=32, lora_alpha=64, target_modules="all-linear", task_type="CAUSAL_LM")


def rollouts(tokenizer, folder: str, **changes) -> CleanerRollouts:
    """Return the rollouts: hindsight, without the model's thinking mode."""
    settings = {"method": "hindsight", "prompt": "stateless", "budget": BUDGET, "template": {"enable_thinking": False}}
    return CleanerRollouts(tokenizer, **settings | changes, folder=folder)


def main() -> None:
    from transformers import AutoTokenizer
    from trl import GRPOTrainer

    folder = sys.argv[1] if len(sys.argv) > 1 else "runs/trl-gpu"
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    with rollouts(tokenizer, folder) as made:
        trainer = GRPOTrainer(
            model=MODEL,
            args=config(folder),
            processing_class=tokenizer,
            train_dataset=made.dataset(load_named(TASKS)[1].tasks),
            eval_dataset=made.dataset(load_named(HELD_OUT)[1].tasks),
            rollout_func=made,
            reward_funcs=made.reward,
            peft_config=adapter(),
        )
        trainer.train()


if __name__ == "__main__":
    main()

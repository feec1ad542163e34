"""A trainer of TRL's over a tiny model, and rollouts that are given instead of sampled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cleaner_rl.tasks import Message, Task
from cleaner_rl.train.rows import Graded
from cleaner_rl.train.trl import CleanerRollouts


class Given(CleanerRollouts):
    """Gives finished rollouts, group by group, in the place of sampled ones."""

    groups: Iterator[Sequence[Graded]]

    async def _runner_for(self, *_: Any) -> Any:
        return None

    async def _group(self, *_: Any) -> tuple[list[Graded], None]:
        return list(next(self.groups)), None


def tokenizer(size: int) -> Any:
    """A tokenizer that can decode any id."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = {f"w{number}": number for number in range(size)}
    made = Tokenizer(models.WordLevel(words, unk_token="w2"))
    return PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="w0", pad_token="w1", chat_template="{{ messages[0].content }}"
    )


def tasks(count: int) -> list[Task]:
    return [Task(f"task{number}", (Message("user", f"What is {number}?"),), "math", "2") for number in range(count)]


def scored(model: Any, groups: Sequence[Sequence[Graded]], folder: Path, **options: Any) -> tuple[Any, dict[str, Any]]:
    """Return the trainer, and the batch that its loss is given for these groups."""
    from trl import GRPOConfig, GRPOTrainer

    size, count = len(groups[0]), sum(map(len, groups))
    known = tokenizer(model.config.vocab_size)
    rollouts = Given(known, max_fault_share=1.0, **options)
    rollouts.groups = iter(groups)
    data = rollouts.dataset(tasks(len(groups)))
    config = GRPOConfig(
        output_dir=str(folder), use_cpu=True, bf16=False, num_generations=size, per_device_train_batch_size=count,
        loss_type="dapo", epsilon=0.2, epsilon_high=0.28, beta=0.0, report_to=[], gradient_checkpointing=False,
    )  # fmt: skip
    trainer = GRPOTrainer(
        model=model, args=config, processing_class=known, train_dataset=data, rollout_func=rollouts,
        reward_funcs=rollouts.reward,
    )  # fmt: skip
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    inputs = [dict(row) for row in data for _ in range(size)]
    return trainer, trainer._generate_and_score_completions(inputs)

"""The toy model of `examples/trl_grpo.py`, and a trainer of TRL's that samples from it."""

from __future__ import annotations

import asyncio
import copy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
GENERATIONS, BATCH = 4, 16


def prepared(heads: int = 4) -> Any:
    """The example, its tasks, its tokenizer, and its model, which calls the tool and mostly fails first."""
    sys.path.insert(0, str(EXAMPLES))
    import torch
    import train_loop
    import trl_grpo as example

    torch.set_num_threads(1)
    torch.manual_seed(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(train_loop.TOY, "n_head", heads)
        return example, *asyncio.run(example.prepared())


def rollouts(toy: Any, **options: Any) -> Any:
    """The example's rollouts."""
    from cleaner_rl.rollout import RolloutBudget
    from cleaner_rl.train.trl import CleanerRollouts
    from cleaner_sandbox import SessionRequest

    example, _, tokenizer, _ = toy
    return CleanerRollouts(
        tokenizer,
        **{"method": "hindsight", "budget": RolloutBudget(turns=3), **options},
        prompt=example.PROMPT,
        sandbox=example.sandbox,
        request=SessionRequest("bare"),
    )


def settings(folder: Path, **changes: Any) -> Any:
    """TRL's configuration of a short run on a CPU."""
    from trl import GRPOConfig

    given: dict[str, Any] = {
        "output_dir": str(folder), "max_steps": 3, "num_generations": GENERATIONS, "per_device_train_batch_size": BATCH,
        "learning_rate": 3e-3, "lr_scheduler_type": "constant", "epsilon_high": 0.28, "disable_dropout": True,
        "use_cpu": True, "bf16": False, "gradient_checkpointing": False, "report_to": [], "save_strategy": "no",
        "disable_tqdm": True, "seed": 0, "logging_strategy": "no",
    }  # fmt: skip
    return GRPOConfig(**given | changes)


def trained(
    toy: Any, made: Any, config: Any, *, model: Any = None, more_rewards: Sequence[Any] = (), **options: Any
) -> tuple[Any, list[Any]]:
    """Train a copy of the toy model; return the trainer, and each batch with the model's own log-probs of it."""
    import torch
    from transformers import PrinterCallback
    from trl import GRPOTrainer

    _, tasks, tokenizer, toy_model = toy
    seen: list[Any] = []

    class Watched(GRPOTrainer):  # type: ignore[misc]
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            batch = super()._generate_and_score_completions(inputs)
            ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
            attention = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
            length = batch["completion_ids"].shape[1]
            with torch.no_grad():
                known = self._get_per_token_logps_and_entropies(self.model, ids, attention, length)[0]
            seen.append((batch, known))
            return batch

    trainer = Watched(
        model=copy.deepcopy(toy_model) if model is None else model, args=config, processing_class=tokenizer,
        train_dataset=made.dataset(tasks), rollout_func=made,
        reward_funcs=[made.reward, *more_rewards], **options,
    )  # fmt: skip
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return trainer, seen


def distance(batch: Any, known: Any) -> float:
    """How far the log-probs of a batch are from the model's own at most, where tokens are in the loss."""
    mask = (batch["completion_mask"] * batch["tool_mask"]).bool()
    return float((known - batch["sampling_per_token_logps"])[mask].abs().max())

"""GRPO with clean trajectories in TRL: an unmodified `GRPOTrainer` that trains on repaired rollouts.

The toy model of `train_loop.py` first imitates rollouts in which most first calls fail. Then TRL trains it. Hindsight
puts the model's own correction in the place of each failed call, before TRL sees the rollout.

Run `python examples/trl_grpo.py [--json]` in an environment with `cleaner-rl[trl]`; it takes two minutes on one CPU
core. It prints how many calls per trajectory fail on held-out tasks, where nothing is repaired, before and after.
`cleaner view runs/trl-grpo` then shows every rollout, and what was repaired in it.
"""

import asyncio
import json
import os
import sys
import tempfile
import time
from random import Random

import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
from train_loop import ANSWER, CALL, END, PAD, PROMPT, PYTHON, SPECIAL, TEMPLATE, WORDS, TorchEngine, demonstrate
from transformers import PreTrainedTokenizerFast

from cleaner_rl.rollout import RolloutBudget, TokenModel, open_runner, tool_result
from cleaner_rl.tasks import Message, Task
from cleaner_rl.tools import feedback
from cleaner_rl.train.trl import CleanerRollouts
from cleaner_sandbox import BARE, Node, NodeConfig, RunRequest, SessionRequest

SEED, STEPS, FOLDER = 0, 12, "runs/trl-grpo"


def sandbox() -> Node:
    return Node(NodeConfig(environments=(BARE,)))


async def prepared() -> tuple[list[Task], PreTrainedTokenizerFast, torch.nn.Module]:
    """Return tasks, a tokenizer, and a model that calls the tool and mostly fails first."""
    async with sandbox() as node:
        ran = {code: await node.run(RunRequest(f"print({code})")) for code in [*PYTHON, *PYTHON.values()]}
        results = {code: feedback(tool_result(each.result)) for code, each in ran.items()}
        tasks = [Task(js, (Message("user", js),), "math", results[py], extra=results) for js, py in PYTHON.items()]
        texts = [message.content for task in tasks for message in PROMPT.messages(task)]
        texts += [*results.values(), *map(CALL.format, results), *map(ANSWER.format, results.values()), "?"]
        backend = Tokenizer(models.WordLevel(unk_token="?"))
        words = pre_tokenizers.Split(Regex("|".join(WORDS)), "isolated")
        backend.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(False, use_regex=False)])
        backend.train_from_iterator(texts, trainers.WordLevelTrainer(special_tokens=SPECIAL, show_progress=False))
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=backend, eos_token=SPECIAL[END], pad_token=SPECIAL[PAD], chat_template=TEMPLATE
        )
        engine, rng = TorchEngine(len(tokenizer)), Random(SEED)
        model = TokenModel.for_prompt(engine, tokenizer, PROMPT, window=256)
        async with open_runner(model, PROMPT, node) as runner:
            shown = [(demonstrate(rng.choice(tasks), runner, rng), 1.0) for _ in range(400)]
        for _ in range(120):
            engine.update(rng.sample(shown, 32))
        return tasks, tokenizer, engine.model


def main() -> None:
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"  # TRL warns that `rollout_func` may change.
    from transformers import PrinterCallback
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    begun = time.monotonic()
    tasks, tokenizer, model = asyncio.run(prepared())
    config = GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        max_steps=STEPS,
        num_generations=8,
        per_device_train_batch_size=48,
        per_device_eval_batch_size=48,
        num_generations_eval=1,
        learning_rate=3e-3,
        lr_scheduler_type="constant",
        epsilon_high=0.28,
        disable_dropout=True,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        seed=SEED,
    )
    rollouts = CleanerRollouts(
        tokenizer,
        method="hindsight",
        prompt=PROMPT,
        budget=RolloutBudget(turns=3),
        sandbox=sandbox,
        request=SessionRequest("bare"),
        folder=FOLDER,
    )
    with rollouts:
        trainer = GRPOTrainer(
            model=model,
            args=config,
            processing_class=tokenizer,
            train_dataset=rollouts.dataset(tasks[1::3] + tasks[2::3]),
            eval_dataset=rollouts.dataset(tasks[::3]),
            rollout_func=rollouts,
            reward_funcs=rollouts.reward,
        )
        trainer.remove_callback(PrinterCallback)
        first, _, last = trainer.evaluate(), trainer.train(), trainer.evaluate()
    name = "eval_cleaner/first_attempt_errors_per_trajectory"
    figures = {"seconds": round(time.monotonic() - begun), "steps": STEPS}
    figures |= {"failed_calls_first": round(first[name], 3), "failed_calls_last": round(last[name], 3)}
    print(json.dumps(figures) if "--json" in sys.argv else figures)


if __name__ == "__main__":
    main()

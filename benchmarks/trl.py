"""Trains a toy model with TRL, and compares what TRL was given with the store: `python -m benchmarks.trl --json`.

It needs an environment with `cleaner-rl[trl]`, and trains the model of `examples/trl_grpo.py`:

- With hindsight. Are the ids and masks of every row in the update those of the store, how far are the log-probs from
  those of the trainer's model, and how many held-out calls fail before and after, with repair off?
- With purification off (`method="grpo"`), and with a plain rollout function, which samples with the same engine and the
  same seeds, runs the same calls in the same sandbox, compares answers as text, and does nothing else.
  `over_plain_trl` is the CPU time per step of the first over that of the second: of this process, its sandbox and its
  graders, so that other programs on the machine don't decide. The two take turns, and the figure is the median over the
  rounds. The learning rate is 0 there, so that both sample from the same model at every step.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import copy
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.record import save

EXAMPLES = Path(__file__).parents[1] / "examples"
SEED, STEPS = 1, 12
ROUNDS, STEPS_TIMED = 9, 9
TURNS = 3
GENERATIONS, BATCH = 8, 48
FAILED = "eval_cleaner/first_attempt_errors_per_trajectory"
CALL = re.compile(r"```python\n(.*?)\n```", re.DOTALL)


class PlainRollouts:
    """What somebody would write by hand for the same tool: no trajectories, no store, no purification."""

    def __init__(self, tokenizer: Any, tasks: list[Any], example: Any) -> None:
        from tokenizers import decoders

        self.tokenizer = tokenizer
        tokenizer.backend_tokenizer.decoder = decoders.ByteLevel()  # rollouts of ours need none
        self.loop = asyncio.new_event_loop()
        self.node = self.loop.run_until_complete(example.sandbox().__aenter__())
        self.tasks = {example.PROMPT.messages(task)[-1].content: task for task in tasks}

    def __call__(self, prompts: list[Any], trainer: Any) -> dict[str, list[Any]]:
        """Return the columns of a batch."""
        from cleaner_rl.rollout.engines import TransformersEngine
        from cleaner_rl.tools import derive_seed

        trainer.model.eval()
        seed = derive_seed(SEED, "training", trainer.state.global_step)
        made = self.loop.run_until_complete(self.batch(prompts, TransformersEngine(trainer.model), seed))
        trainer.model.train()
        names = ("prompt_ids", "completion_ids", "logprobs", "env_mask", "score")
        return {name: [row[place] for row in made] for place, name in enumerate(names)}

    async def batch(self, prompts: list[Any], engine: Any, seed: int) -> list[tuple[Any, ...]]:
        """Run all rollouts at once."""
        from cleaner_rl.trajectory import Seeds

        tasks = [self.tasks[messages[-1]["content"]] for messages in prompts]
        seeds = [Seeds(seed, task.id, number % GENERATIONS) for number, task in enumerate(tasks)]
        return await asyncio.gather(*map(self.one, prompts, tasks, seeds, [engine] * len(tasks)))

    async def one(self, messages: Any, task: Any, seeds: Any, engine: Any) -> tuple[Any, ...]:
        """Run one rollout."""
        from cleaner_rl.rollout import Sampling, tool_result
        from cleaner_rl.tools import feedback
        from cleaner_sandbox import RunRequest

        prompt = self.tokenizer.apply_chat_template(messages, return_dict=False)
        ids: list[int] = []
        logprobs: list[float] = []
        mask: list[int] = []
        text = ""
        for turn in range(TURNS):
            given = np.array([*prompt, *ids], np.int32)
            drawn = await engine.sample(
                given, max_tokens=32, seed=seeds.request(turn), sampling=Sampling(), stop_ids=(0,), request=""
            )
            ids, mask = [*ids, *drawn.ids_T.tolist()], [*mask, *[1] * len(drawn.ids_T)]
            logprobs += drawn.logprobs_T.tolist()
            text = self.tokenizer.decode(drawn.ids_T)
            call = CALL.search(text)
            if call is None:
                break
            result = tool_result((await self.node.run(RunRequest(call[1], environment="bare"))).result)
            told = self.tokenizer.encode(f"<|tool|>{feedback(result)}<|end|><|assistant|>")
            ids, mask, logprobs = [*ids, *told], [*mask, *[0] * len(told)], [*logprobs, *[0.0] * len(told)]
        right = task.truth.strip() in text
        return prompt, ids, logprobs, mask, 1.0 if right else -1.0

    def close(self) -> None:
        """End the sandbox."""
        self.loop.run_until_complete(self.node.__aexit__(None, None, None))

    @staticmethod
    def reward(*, score: list[float], **_: Any) -> list[float]:
        """Return what the batch had."""
        return score


def cpu_seconds() -> float:
    """CPU time of this process and of all that it started, those that have ended included."""
    import psutil

    total = 0.0
    me = psutil.Process()
    for each in [me, *me.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            total += sum(each.cpu_times()[:4])  # user and system, its own and of children that it has waited for
    return total


def trained(example: Any, prepared: Any, steps: int, method: str | None, folder: Path | None) -> dict[str, Any]:
    """Train once; the seconds and CPU seconds per step, and with a folder how rows compare with the store."""
    import torch
    from transformers import PrinterCallback
    from trl import GRPOConfig, GRPOTrainer

    from cleaner_rl.purify import PurifyConfig, PurifyScope
    from cleaner_rl.rollout import RolloutBudget
    from cleaner_rl.train.trl import CleanerRollouts
    from cleaner_sandbox import SessionRequest

    tasks, tokenizer, model = prepared[0], prepared[1], copy.deepcopy(prepared[2])
    seen: list[tuple[dict[str, Any], float]] = []

    class Watched(GRPOTrainer):  # type: ignore[misc]
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            batch = super()._generate_and_score_completions(inputs)
            if self.model.training and folder is not None:
                seen.append((batch, self.distance(batch)))
            return batch

        def distance(self, batch: Any) -> float:
            mask = (batch["completion_mask"] * batch["tool_mask"]).bool()
            ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
            attention = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
            with torch.no_grad():
                found = self._get_per_token_logps_and_entropies(self.model, ids, attention, mask.shape[1])[0]
            return float((found - batch["sampling_per_token_logps"])[mask].abs().max())

        def training_step(self, *arguments: Any, **options: Any) -> Any:
            begun, used = time.perf_counter(), cpu_seconds()
            loss = super().training_step(*arguments, **options)
            times.append(time.perf_counter() - begun)
            used_times.append(cpu_seconds() - used)
            return loss

    times: list[float] = []
    used_times: list[float] = []
    config = GRPOConfig(
        output_dir=tempfile.mkdtemp(), max_steps=steps, num_generations=GENERATIONS, per_device_train_batch_size=BATCH,
        per_device_eval_batch_size=BATCH, num_generations_eval=1, lr_scheduler_type="constant",
        learning_rate=0.0 if folder is None else 3e-3,
        epsilon_high=0.28, disable_dropout=True, use_cpu=True, bf16=False, gradient_checkpointing=False, report_to=[],
        save_strategy="no", disable_tqdm=True, seed=0, logging_strategy="no",
    )  # fmt: skip
    ours = CleanerRollouts(
        tokenizer, method=method or "grpo", prompt=example.PROMPT, purify=PurifyConfig(scope=PurifyScope.SUCCESSFUL),
        budget=RolloutBudget(turns=TURNS), sandbox=example.sandbox, request=SessionRequest("bare"), seed=SEED,
        folder=folder,
    )  # fmt: skip
    with ours:
        train, held_out = ours.dataset(tasks[1::3] + tasks[2::3]), ours.dataset(tasks[::3])
        rollouts: Any = ours if method else PlainRollouts(tokenizer, tasks, example)
        trainer = Watched(
            model=model, args=config, processing_class=tokenizer, train_dataset=train, eval_dataset=held_out,
            rollout_func=rollouts, reward_funcs=rollouts.reward,
        )  # fmt: skip
        trainer.remove_callback(PrinterCallback)
        first = trainer.evaluate() if folder else {}
        trainer.train()
        last = trainer.evaluate() if folder else {}
        rollouts.close()
    found: dict[str, Any] = {"seconds": median(times[1:]), "cpu_seconds": median(used_times[1:])}
    if folder is not None:
        found |= {"failed_calls_first": first[FAILED], "failed_calls_last": last[FAILED], **_compared(seen, folder)}
    return found


def _compared(seen: list[tuple[dict[str, Any], float]], folder: Path) -> dict[str, Any]:
    """How many rows of the update are a stored rollout, id for id and mask for mask."""
    from cleaner_rl.trajectory import Phase
    from cleaner_rl.trajectory.store import read

    stored: Any = read(folder / "trajectories", Phase.TRAINING)
    kept = [each for each in stored if each.info.verdict["kept"]]
    known = {(tuple(each.ids().tolist()), tuple(each.loss_mask()[len(each.prompt) :].astype(int))) for each in kept}
    equal = count = 0
    for batch, _ in seen:
        for place in range(len(batch["completion_ids"])):
            prompt = batch["prompt_ids"][place][batch["prompt_mask"][place].bool()].tolist()
            there = batch["completion_mask"][place].bool()
            ids, mask = (batch[name][place][there].tolist() for name in ("completion_ids", "tool_mask"))
            equal += ((*prompt, *ids), tuple(mask)) in known
            count += 1
    return {"rows": count, "rows_equal": equal, "logprob_max_diff": max(distance for _, distance in seen)}


def main() -> None:
    """Print the figures, a line each or as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--save", type=Path, help="also write the figures to this file")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of the run with hindsight")
    arguments = parser.parse_args()
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    sys.path.insert(0, str(EXAMPLES))
    import torch
    import trl_grpo as example

    torch.set_num_threads(1)
    torch.manual_seed(0)
    prepared = asyncio.run(example.prepared())
    with tempfile.TemporaryDirectory() as folder:
        found = trained(example, prepared, arguments.steps, "hindsight", Path(folder))
    rounds = []
    for _ in range(ROUNDS):
        ours, plain = (trained(example, prepared, STEPS_TIMED, method, None) for method in ("grpo", None))
        rounds.append(ours["cpu_seconds"] / plain["cpu_seconds"])
    figures = {
        "rows_equal": found["rows_equal"],
        "rows": found["rows"],
        "logprob_max_diff": found["logprob_max_diff"],
        "failed_calls_first": round(found["failed_calls_first"], 3),
        "failed_calls_last": round(found["failed_calls_last"], 3),
        "seconds_per_step": round(found["seconds"], 3),
        "over_plain_trl": round(median(rounds), 3),
    }
    if arguments.save:
        settings = {"steps": arguments.steps, "rounds": ROUNDS, "steps_timed": STEPS_TIMED}
        save(arguments.save, figures, settings | {"over_plain_trl_of_each_round": [round(each, 3) for each in rounds]})
    print(json.dumps(figures) if arguments.json else "\n".join(f"{name}: {value}" for name, value in figures.items()))


if __name__ == "__main__":
    main()

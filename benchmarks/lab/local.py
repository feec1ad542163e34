"""Trains a recipe in one process, with plain torch: `python -m benchmarks.lab.local RECIPE`.

Rollouts, repairs, groups, rows, metrics and the store are the library's, as on verl; the sandbox and the graders are
real. What verl, Ray and vLLM do is done here by torch and transformers on one core, so that a toy model takes a step in
seconds. The folder of a run is as `cleaner train` leaves it, so the rest of the lab reads both.

A step samples groups, makes rows of them (`group_rows`), and takes an update for each mini-batch: the clipped loss, a
mean over its tokens, by AdamW. The settings of the update that a recipe doesn't have are verl's defaults.

Limits: sampling at temperature 1, the loss as a token mean, no KL loss, no warm-up, one process.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, AutoTokenizer

from cleaner_rl.rollout import RolloutRunner, Sampling
from cleaner_rl.sandbox import Node
from cleaner_rl.tasks import Task, read_verl
from cleaner_rl.train import Recipe, checkpointed, read_recipe
from cleaner_rl.train.launch.node import node_config
from cleaner_rl.train.recipe.settings import UpdateSettings, run_folder
from cleaner_rl.train.rows import Exclusion, Graded, RowGroup, TrainRow, exclusion, group_rows
from cleaner_rl.train.trl.engine import TransformersEngine
from cleaner_rl.train.verl.runner import for_phase, runner_of
from cleaner_rl.train.verl.step_record import StepRecord
from cleaner_rl.trajectory import Key, Phase, TokenSpan

WEIGHT_DECAY, CLIP_NORM = 0.01, 1.0
"""verl's defaults."""


class LocalTrainer:
    """One run: its model, its optimizer, and its folder."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe, self.folder = recipe, run_folder(recipe)
        self.step = checkpointed(self.folder)
        last = self._checkpoint(self.step)
        path = last / "actor" / "huggingface" if self.step else Path(recipe.model.path)
        self.tokenizer = AutoTokenizer.from_pretrained(path)
        self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=recipe.update.lr, weight_decay=WEIGHT_DECAY)
        self._record = StepRecord(recipe, self.folder)
        self._tasks = shuffled([*chain(*map(read_verl, recipe.tasks.train))], recipe.seed)
        self._drawn = 0
        if self.step:
            saved = torch.load(last / "trainer.pt")
            self.optimizer.load_state_dict(saved["optimizer"])
            for _ in range(saved["drawn"]):
                self._next_task()

    async def train(self) -> None:
        """Train to the recipe's last step, from the last checkpoint on."""
        run = self.recipe.run
        held_out = [*chain(*map(read_verl, self.recipe.tasks.held_out))]
        async with Node(node_config(self.recipe.sandbox)) as sandbox:
            runner = runner_of(self.recipe, self.tokenizer, self._engine(), sandbox)
            if not self.step:
                await self._evaluate(runner, held_out)
            while self.step < run.steps:
                begun = time.process_time()
                self.step += 1
                groups = await self._sampled(runner)
                for part in parts(groups, self.recipe.batch.prompts // self.recipe.batch.mini_batch):
                    self.update(part)
                figures = self._record.finish(self.step, "train")
                told = f"reward {figures['cleaner/reward']:+.2f}, accuracy {figures['cleaner/accuracy']:.1%}"
                print(f"step {self.step}: {told}, {time.process_time() - begun:.1f} CPU s", flush=True)
                if self.step % run.evaluate_every == 0 or self.step == run.steps:
                    await self._evaluate(runner, held_out)
                if self.step % run.save_every == 0 or self.step == run.steps:
                    self._save()

    # ---- rollouts

    async def _sampled(self, runner: RolloutRunner[TokenSpan]) -> list[RowGroup]:
        """Return the groups of a step. A group that can't be learnt from is replaced by another task's."""
        batch = self.recipe.batch
        config = replace(self.recipe.row_config(), dynamic_sampling=batch.dynamic_sampling)
        shared = self._for_phase(runner, Phase.TRAINING)
        groups: list[RowGroup] = []
        while len(groups) < batch.prompts:
            wanted = [self._next_task() for _ in range(batch.prompts - len(groups))]
            for drawn in await asyncio.gather(*[self._group(shared, task) for task in wanted]):
                made = group_rows(drawn, config)
                self._record.left_out(sum(why is Exclusion.LEFT_OUT for why in made.excluded.values()))
                if made.selection.refill is None:
                    self._record.selected(drawn, made, config.group, made.faults)
                    groups.append(made)
                else:
                    self._record.evicted(made.selection.refill.value, drawn, made.faults)
            self._record.check()
        return groups

    def _next_task(self) -> Task:
        self._drawn += 1
        return next(self._tasks)

    async def _group(self, runner: RolloutRunner[TokenSpan], task: Task) -> list[Graded]:
        keys = [Key(self.recipe.name, self.step, task.id, number) for number in range(self.recipe.sampled)]
        drawn = await asyncio.gather(*[runner.run_one(task, key) for key in keys])
        return [self.recipe.overlong().shape(each) for each in drawn]

    async def _evaluate(self, runner: RolloutRunner[TokenSpan], held_out: Sequence[Task]) -> None:
        shared = self._for_phase(runner, Phase.EVALUATION)
        keys = [(task, Key(self.recipe.name, self.step, task.id, 0, Phase.EVALUATION)) for task in held_out]
        drawn = await asyncio.gather(*[shared.run_one(task, key) for task, key in keys])
        whole = [each for each in drawn if exclusion(each) is not Exclusion.FAULT]
        self._record.evaluated(whole, len(drawn) - len(whole))
        self._record.finish(self.step, "val")
        right = sum(bool(each.success) for each in whole) / max(1, len(whole))
        print(f"evaluation after step {self.step}: accuracy {right:.1%} on {len(whole)} tasks", flush=True)

    def _for_phase(self, runner: RolloutRunner[TokenSpan], phase: Phase) -> RolloutRunner[TokenSpan]:
        """Return the runner on the present weights. Training draws anew at every step, an evaluation draws alike."""
        drawn = (self.step, 0) if phase is Phase.TRAINING else ()
        return for_phase(runner, self.recipe, self._engine(), phase, drawn, Sampling(), self.recipe.window)

    def _engine(self) -> TransformersEngine:
        return TransformersEngine(self.model, self.step)

    # ---- updates

    def update(self, groups: Sequence[RowGroup]) -> None:
        """Take one step on the rows of some groups."""
        rows = [row for group in groups for row in group.rows]
        total = sum(row.weight * float(row.loss_mask.sum()) for row in rows)
        self.optimizer.zero_grad()
        for first in range(0, len(rows), self.recipe.batch.micro_batch):
            loss = clipped_loss(self.model, rows[first : first + self.recipe.batch.micro_batch], self.recipe.update)
            (loss / total).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP_NORM)
        self.optimizer.step()

    def _save(self) -> None:
        folder = self._checkpoint(self.step)
        self.model.save_pretrained(folder / "actor" / "huggingface")
        self.tokenizer.save_pretrained(folder / "actor" / "huggingface")
        torch.save({"optimizer": self.optimizer.state_dict(), "drawn": self._drawn}, folder / "trainer.pt")
        # Last, so that a run that is killed while it saves goes on from the checkpoint before.
        (folder.parent / "latest_checkpointed_iteration.txt").write_text(str(self.step))

    def _checkpoint(self, step: int) -> Path:
        return self.folder / "checkpoints" / f"global_step_{step}"


def clipped_loss(model: Any, rows: Sequence[TrainRow], update: UpdateSettings) -> torch.Tensor:
    """Return the sum over tokens of the clipped loss, each with its row's weight."""
    ids_BT = pad_sequence([torch.tensor([*row.prompt_ids, *row.response_ids]) for row in rows], True)  # noqa: N806
    there_BT = pad_sequence([torch.ones(len(row.prompt_ids) + len(row.response_ids)) for row in rows], True)  # noqa: N806
    logits = model(input_ids=ids_BT, attention_mask=there_BT.long()).logits[:, :-1]
    new_BT = logits.log_softmax(-1).gather(-1, ids_BT[:, 1:, None])[..., 0]  # noqa: N806
    loss = new_BT.new_zeros(())
    for row, new_T in zip(rows, new_BT, strict=True):  # noqa: N806
        first = len(row.prompt_ids) - 1
        mask = torch.from_numpy(row.loss_mask)
        new, old = new_T[first : first + len(mask)][mask], torch.from_numpy(row.logprobs)[mask]
        assert row.advantage is not None
        ratio = (new - old).exp()
        bounded = ratio.clamp(1 - update.clip_low, 1 + update.clip_high)
        gain = torch.minimum(ratio * row.advantage, bounded * row.advantage)
        if row.advantage < 0:
            gain = torch.maximum(gain, torch.full_like(gain, update.clip_c * row.advantage))
        loss = loss - row.weight * gain.sum()
    return loss


def parts(groups: Sequence[RowGroup], count: int) -> Iterator[Sequence[RowGroup]]:
    """Yield the mini-batches of a step: all rows of a group are in one of them."""
    size = len(groups) // count
    return (groups[first : first + size] for first in range(0, len(groups), size))


def shuffled(tasks: Sequence[Task], seed: int) -> Iterator[Task]:
    """Yield the tasks without end, in another order each time."""
    rng = Random(seed)
    while True:
        yield from rng.sample(tasks, len(tasks))


def main() -> None:
    """Train the recipe that is named."""
    torch.set_num_threads(1)
    asyncio.run(LocalTrainer(read_recipe(sys.argv[1])).train())


if __name__ == "__main__":
    main()

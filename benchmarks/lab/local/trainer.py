"""Trains a recipe in one process. The folder of a run is as `cleaner train` leaves it, so the rest of the lab reads it.

A step samples groups, makes rows of them (`group_rows`), and takes an update for each mini-batch: the clipped loss, a
mean over its tokens, by AdamW. The settings of the update that a recipe doesn't have are verl's defaults. Rows whose
advantage is 0 have no gradient: they count in the mean, and are not computed.

Where a run ends depends on its last batches. If its learning rate *decays*, in a line to 0 over the second half of the
steps, it depends on them less, and fewer worlds can tell two methods apart.

Limits: sampling at temperature 1, no KL loss, no warm-up, one process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import chain
from math import inf
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import numpy as np
import torch

from benchmarks.lab.local.beyond import Beyond
from benchmarks.lab.local.costs import Values, at_own_cost, token_advantages
from benchmarks.lab.local.engine import TinyEngine
from benchmarks.lab.local.gate import Gate
from benchmarks.lab.local.programs import RememberingSandbox
from benchmarks.lab.recipes import RATE
from cleaner_rl.rollout import RolloutRunner, Sampling
from cleaner_rl.tasks import Task, read_verl
from cleaner_rl.train import Recipe
from cleaner_rl.train.launch.node import node_config
from cleaner_rl.train.launch.rewind import checkpointed, set_aside
from cleaner_rl.train.recipe.settings import run_folder
from cleaner_rl.train.record import StepRecord
from cleaner_rl.train.rows import (
    Exclusion,
    Graded,
    RowGroup,
    TrainRow,
    View,
    exclusion,
    failed_tokens,
    group_rows,
    recovery_view,
)
from cleaner_rl.train.verl.overrides import number, overrides
from cleaner_rl.train.verl.runner import for_phase, runner_of
from cleaner_rl.train.verl.settings import ACTOR
from cleaner_rl.trajectory import Key, Phase, TokenSpan, without_hindsight
from cleaner_sandbox import Node, RunOutcome

WEIGHT_DECAY, CLIP_NORM = 0.01, 1.0
"""verl's defaults."""
TOGETHER = 3_000
"""Tokens that are computed at once in an update, padding included."""


AtEnd: TypeAlias = Callable[[RolloutRunner[TokenSpan]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Clips:
    """Bounds of the probability ratio of a token."""

    low: float = 0.2
    high: float = 0.28
    most: float = 10.0
    """The largest ratio that counts where the advantage is negative (dual clip)."""


@dataclass(frozen=True, slots=True)
class StepCost:
    """What a step took."""

    sampled: int
    """Tokens that were sampled, those of lookaheads and of rescues in vain among them."""
    scored: int
    trained: int
    """Tokens in the loss, of rows with an advantage."""
    calls: int
    cpu_seconds: float
    """Of this process; programs in the sandbox have their own."""
    updates: UpdateFigures
    """Over the step's updates."""
    judged: int = 0
    """Repairs that a gate judged."""
    opened: int = 0
    """Those of them that passed."""


@dataclass(slots=True)
class UpdateFigures:
    """What the updates of a step were made of; tokens are weighted, and of rows with an advantage."""

    positive: float = 0.0
    """N₊: tokens whose advantage is above 0."""
    negative: float = 0.0
    """N₋: tokens whose advantage is below 0."""
    clipped: int = 0
    """Tokens without a gradient, because their ratio is beyond a bound."""
    tokens: int = 0
    entropy: float = 0.0
    """Sum over the tokens, in nats."""


class LocalTrainer:
    """One run: its model, its optimizer, and its folder."""

    def __init__(
        self,
        recipe: Recipe,
        beyond: Beyond = Beyond(),  # noqa: B008 - frozen
        frozen: int = 0,
        decays: bool = False,
        known: dict[str, RunOutcome] | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """`dtype` is that of matrix products in layers; weights and logits stay in float32."""
        self.recipe, self.beyond, self.folder = recipe, beyond, run_folder(recipe)
        self._decays, self._known, self._dtype = decays, known, dtype
        self.step = checkpointed(self.folder)
        set_aside(self.folder, evaluates=not self.step)
        last = self._checkpoint(self.step)
        path = last / "actor" / "huggingface" if self.step else Path(recipe.model.path)
        self.model, self.tokenizer = loaded(path)
        self.trained = trained(self.model, frozen)
        settings = overrides(recipe, self.folder)
        self._rate = number(settings, RATE)
        self._save_every = int(number(settings, "trainer.save_freq"))
        self._test_every = int(number(settings, "trainer.test_freq"))
        self._clips = Clips(*(number(settings, f"{ACTOR}.clip_ratio_{name}") for name in ("low", "high", "c")))
        self.optimizer = torch.optim.AdamW(self.trained, lr=self._rate, weight_decay=WEIGHT_DECAY)
        self.costs: dict[int, StepCost] = {}
        self._record = StepRecord(self.folder, recipe.step_config())
        self._tasks = shuffled([*chain(*map(read_verl, recipe.tasks.train))], recipe.seed)
        self._drawn = 0
        self._gate = None if beyond.gate is None else Gate(beyond.gate)
        self._values = Values()
        self._updates = UpdateFigures()
        if self.step:
            saved = torch.load(last / "trainer.pt", weights_only=False)
            self.optimizer.load_state_dict(saved["optimizer"])
            self.costs = saved["costs"]
            self._values = saved["values"]
            if self._gate is not None:
                self._gate.seen = saved["votes"]
            for _ in range(saved["drawn"]):
                self._next_task()

    async def train(self, say: Callable[[str], None] = print, at_end: AtEnd | None = None) -> None:
        """Train to the recipe's last step, from the last checkpoint on; `at_end` measures the trained model."""
        run = self.recipe.run
        held_out = [*chain(*map(read_verl, self.recipe.tasks.held_out))]
        at_once = max(len(held_out), self.recipe.batch.prompts * self.recipe.sampled)
        async with Node(node_config(self.recipe.sandbox, sessions=at_once)) as node:
            self._sandbox = sandbox = RememberingSandbox(node, self._known)
            self._engine = TinyEngine(self.model, self.step, dtype=self._dtype)
            runner = runner_of(self.recipe, self.tokenizer, self._engine, sandbox)
            if not self.step:
                say(await self._evaluate(runner, held_out))
            while self.step < run.steps:
                begun, asked = time.process_time(), sandbox.asked
                self.step += 1
                groups = await self._sampled(runner)
                if self._decays:
                    self.optimizer.param_groups[0]["lr"] = self._rate * decayed(self.step, run.steps)
                self._updates = UpdateFigures()
                for part in parts(groups, self.recipe.batch.prompts // self.recipe.batch.mini_batch):
                    self.update(part)
                figures = self._record.finish(self.step, "train")
                cost = StepCost(
                    sampled=self._engine.sampled,
                    scored=self._engine.scored,
                    trained=sum(int(row.loss_mask.sum()) for group in groups for row in group.rows if row.advantage),
                    calls=sandbox.asked - asked,
                    cpu_seconds=time.process_time() - begun,
                    updates=self._updates,
                    judged=0 if self._gate is None else self._gate.judged,
                    opened=0 if self._gate is None else self._gate.opened,
                )
                self.costs[self.step] = cost
                told = f"reward {figures['cleaner/reward']:+.2f}, accuracy {figures['cleaner/accuracy']:.1%}"
                say(f"step {self.step}: {told}, {cost.cpu_seconds:.1f} CPU s")
                if self.step % self._test_every == 0 or self.step == run.steps:
                    say(await self._evaluate(runner, held_out))
                if self.step % self._save_every == 0 or self.step == run.steps:
                    self._save()
            if at_end is not None:
                await at_end(self._for_phase(runner, Phase.EVALUATION))

    # ---- rollouts

    async def _sampled(self, runner: RolloutRunner[TokenSpan]) -> list[RowGroup]:
        """Return the groups of a step. A group that can't be learnt from is replaced by another task's."""
        batch = self.recipe.batch
        config = replace(self.recipe.row_config(), dynamic_sampling=batch.dynamic_sampling)
        shared = self._for_phase(runner, Phase.TRAINING)
        kept: list[tuple[list[Graded], RowGroup]] = []
        while len(kept) < batch.prompts:
            wanted = [self._next_task() for _ in range(batch.prompts - len(kept))]
            sampled: list[list[Graded]] = await asyncio.gather(*[self._group(shared, task) for task in wanted])
            if self._gate is not None:
                sampled = await self._gate.passed(sampled, partial(self._engine.score, request=""), self._engine.likely)
            for drawn in sampled:
                made = group_rows(drawn, config)
                if self.beyond != Beyond():
                    made = replace(made, rows=tuple(beyond_recipes(made.rows, drawn, self.beyond)))
                self._record.left_out(sum(why is Exclusion.LEFT_OUT for why in made.excluded.values()))
                if made.selection.refill is None:
                    self._record.selected(drawn, made, config.group, made.faults)
                    kept.append((drawn, made))
                else:
                    self._record.evicted(made.selection.refill.value, drawn, made.faults)
            self._record.check()
        groups = [made for _, made in kept]
        if self.beyond.own_cost:
            costed = at_own_cost(kept, self._values)
            groups = [replace(made, rows=rows) for made, rows in zip(groups, costed, strict=True)]
        return balanced(groups, self.beyond.most_positive)

    def _next_task(self) -> Task:
        self._drawn += 1
        return next(self._tasks)

    async def _group(self, runner: RolloutRunner[TokenSpan], task: Task) -> list[Graded]:
        keys = [Key(self.recipe.name, self.step, task.id, number) for number in range(self.recipe.sampled)]
        drawn = await asyncio.gather(*[runner.run_one(task, key) for key in keys])
        rescue = await runner.try_rescue(task, drawn)
        if rescue is not None:
            self._record.tried(rescue)
        rescued = [] if rescue is None or rescue.rescued is None else [rescue.rescued]
        overlong = self.recipe.overlong()
        return [overlong.shape(each) for each in (*drawn, *rescued)]

    async def _evaluate(self, runner: RolloutRunner[TokenSpan], held_out: Sequence[Task]) -> str:
        shared = self._for_phase(runner, Phase.EVALUATION)
        keys = [(task, Key(self.recipe.name, self.step, task.id, 0, Phase.EVALUATION)) for task in held_out]
        drawn = await asyncio.gather(*[shared.run_one(task, key) for task, key in keys])
        whole = [each for each in drawn if exclusion(each) is not Exclusion.FAULT]
        self._record.evaluated(whole, len(drawn) - len(whole))
        self._record.finish(self.step, "val")
        right = sum(bool(each.success) for each in whole) / max(1, len(whole))
        return f"evaluation after step {self.step}: accuracy {right:.1%} on {len(whole)} tasks"

    def _for_phase(self, runner: RolloutRunner[TokenSpan], phase: Phase) -> RolloutRunner[TokenSpan]:
        """Return the runner on the present weights. Training draws anew at every step, an evaluation draws alike."""
        drawn = (self.step, 0) if phase is Phase.TRAINING else ()
        self._engine = TinyEngine(self.model, self.step, self._sandbox.idle, self._dtype)
        return for_phase(runner, self.recipe, self._engine, phase, drawn, Sampling(), self.recipe.window)

    # ---- updates

    def update(self, groups: Sequence[RowGroup]) -> None:
        """Take one step on the rows of some groups."""
        rows = [row for group in groups for row in group.rows]
        if self.beyond.sequence_mean:
            rows = [with_equal_rows(row) for row in rows]
        total = sum(row.weight * float(row.loss_mask.sum()) for row in rows)
        self.optimizer.zero_grad()
        for some in batches([row for row in rows if token_advantages(row).any()]):
            (clipped_loss(self.model, some, self._clips, self._dtype, self._updates) / total).backward()
        torch.nn.utils.clip_grad_norm_(self.trained, CLIP_NORM)
        self.optimizer.step()

    def _save(self) -> None:
        folder = self._checkpoint(self.step)
        self.model.save_pretrained(folder / "actor" / "huggingface")
        self.tokenizer.save_pretrained(folder / "actor" / "huggingface")
        saved = {"optimizer": self.optimizer.state_dict(), "drawn": self._drawn, "costs": self.costs}
        saved |= {"values": self._values, "votes": None if self._gate is None else self._gate.seen}
        torch.save(saved, folder / "trainer.pt")
        # Last, so that a run that is killed while it saves goes on from the checkpoint before.
        (folder.parent / "latest_checkpointed_iteration.txt").write_text(str(self.step))

    def _checkpoint(self, step: int) -> Path:
        return self.folder / "checkpoints" / f"global_step_{step}"


def loaded(path: Path) -> tuple[Any, Any]:
    """Return a model and its tokenizer."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(path)
    # Prompts, glue and results are encoded once for each rollout, and there are few different ones.
    tokenizer.encode = lru_cache(100_000)(tokenizer.encode)
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval(), tokenizer


@asynccontextmanager
async def served(recipe: Recipe, model: Any, tokenizer: Any) -> AsyncIterator[RolloutRunner[TokenSpan]]:
    """Give a runner for evaluations of a model, with a sandbox of its own."""
    async with Node(node_config(recipe.sandbox)) as node:
        sandbox = RememberingSandbox(node)
        engine = TinyEngine(model, ready=sandbox.idle)
        runner = runner_of(recipe, tokenizer, engine, sandbox)
        yield for_phase(runner, recipe, engine, Phase.EVALUATION, (), Sampling(), recipe.window)


def decayed(step: int, steps: int) -> float:
    """Return which share of the learning rate a step has: all of it up to the middle, then less in a line."""
    return min(1.0, 2 * (steps - step + 1) / steps)


def trained(model: Any, frozen: int) -> list[torch.nn.Parameter]:
    """Return what is trained of a model, and freeze the rest: so many layers, and then the embeddings too."""
    if frozen:
        for part in (model.base_model.embed_tokens, *model.base_model.layers[:frozen]):
            part.requires_grad_(False)
    return [each for each in model.parameters() if each.requires_grad]


def clipped_loss(
    model: Any,
    rows: Sequence[TrainRow],
    clips: Clips,
    dtype: torch.dtype = torch.float32,
    figures: UpdateFigures | None = None,
) -> torch.Tensor:
    """Return the sum over tokens of the clipped loss, each with its row's weight; and add to the figures."""
    longest = max(len(row.prompt_ids) + len(row.response_ids) for row in rows)
    ids_BT = torch.zeros(len(rows), longest, dtype=torch.long)  # noqa: N806 - the shape is part of the name
    counts_BT = torch.zeros(len(rows), longest, dtype=torch.bool)  # noqa: N806
    for place, row in enumerate(rows):
        prompt, end = len(row.prompt_ids), len(row.prompt_ids) + len(row.response_ids)
        ids_BT[place, :prompt] = torch.from_numpy(row.prompt_ids.astype("int64"))
        ids_BT[place, prompt:end] = torch.from_numpy(row.response_ids.astype("int64"))
        counts_BT[place, prompt:end] = torch.from_numpy(row.loss_mask)
    counted = counts_BT[:, 1:]
    # Padding stands at the end, where nothing that counts looks: no mask. The vocabulary is looked at where it counts.
    with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        hidden = model.base_model(input_ids=ids_BT, use_cache=False).last_hidden_state[:, :-1][counted]
    every = model.get_output_embeddings()(hidden).log_softmax(-1)
    new = every.gather(-1, ids_BT[:, 1:][counted][:, None])[:, 0]
    lengths = torch.tensor([int(row.loss_mask.sum()) for row in rows])
    old = torch.cat([torch.from_numpy(row.logprobs[row.loss_mask]) for row in rows])
    advantage = torch.cat([torch.from_numpy(token_advantages(row)) for row in rows]).to(new.dtype)
    weight = torch.tensor([row.weight for row in rows], dtype=new.dtype).repeat_interleave(lengths)
    ratio = (new - old).exp()
    gain = torch.minimum(ratio * advantage, ratio.clamp(1 - clips.low, 1 + clips.high) * advantage)
    gain = torch.where(advantage < 0, torch.maximum(gain, clips.most * advantage), gain)
    if figures is not None:
        with torch.no_grad():
            high, low = ratio > 1 + clips.high, (ratio < 1 - clips.low) | (ratio > clips.most)
            figures.positive += float(weight[advantage > 0].sum())
            figures.negative += float(weight[advantage < 0].sum())
            figures.clipped += int((((advantage > 0) & high) | ((advantage < 0) & low)).sum())
            figures.tokens += len(new)
            figures.entropy -= float((every.exp() * every).sum())
    return -(weight * gain).sum()


def balanced(groups: Sequence[RowGroup], most: float) -> list[RowGroup]:
    """Return groups whose rows with a positive advantage count at most so much for each token of the others.

    They are scaled by min(1, most · N₋ / N₊), with the tokens in the loss of all groups.
    """
    if most == inf:
        return list(groups)
    rows = [row for group in groups for row in group.rows if row.advantage]
    tokens = {True: 0.0, False: 0.0}
    for row in rows:
        tokens[(row.advantage or 0.0) > 0] += row.weight * int(row.loss_mask.sum())
    share = min(1.0, most * tokens[False] / tokens[True]) if tokens[True] else 1.0

    def scaled(row: TrainRow) -> TrainRow:
        return replace(row, advantage=share * row.advantage) if row.advantage and row.advantage > 0 else row

    return [replace(group, rows=tuple(map(scaled, group.rows))) for group in groups]


def beyond_recipes(rows: Sequence[TrainRow], group: Sequence[Graded], beyond: Beyond) -> Iterator[TrainRow]:
    """Yield the rows of a group with those settings that concern single rows."""
    rollouts = {each.key: each for each in group}
    two_views = {row.key for row in rows if row.view is View.RECOVERY}
    for row in rows:
        rollout, prompt = rollouts[row.key], len(row.prompt_ids)
        if beyond.drops_void and is_void(rollout):
            continue
        if row.view is View.RECOVERY:
            raw = recovery_view(rollout)
            assert raw is not None
            mask = raw.loss_mask()[prompt:] if beyond.trains_failed else row.loss_mask
            yield replace(row, weight=row.weight * beyond.recovery_weight, loss_mask=mask)
            continue
        weight = row.weight * beyond.clean_weight if row.key in two_views else row.weight
        spared = beyond.spares_failed and row.advantage is not None and row.advantage < 0
        mask = row.loss_mask & ~failed_tokens(rollout)[prompt:] if spared else row.loss_mask
        sampled = rollout.behaviour_logprobs()[prompt:]
        old = row.logprobs + np.where(mask, beyond.importance * (sampled - row.logprobs), 0.0).astype(np.float32)
        yield replace(row, weight=weight, loss_mask=mask, logprobs=old)


def is_void(rollout: Graded) -> bool:
    """Return whether a turn before the last has no call, or the last has neither a call nor an answer."""
    turns = without_hindsight(rollout).turns
    return any(not turn.calls for turn in turns[:-1]) or (not turns[-1].calls and rollout.info.answer is None)


def with_equal_rows(row: TrainRow) -> TrainRow:
    """Return a row with a weight by which a mean over tokens becomes one over rows, each with a mean over its own."""
    return replace(row, weight=row.weight / max(1, int(row.loss_mask.sum())))


def batches(rows: Sequence[TrainRow]) -> Iterator[list[TrainRow]]:
    """Yield rows of like length together, as many as are computed at once."""
    some: list[TrainRow] = []
    for row in sorted(rows, key=_length):
        if some and _length(row) * (len(some) + 1) > TOGETHER:
            yield some
            some = []
        some.append(row)
    if some:
        yield some


def _length(row: TrainRow) -> int:
    return len(row.prompt_ids) + len(row.response_ids)


def parts(groups: Sequence[RowGroup], count: int) -> Iterator[Sequence[RowGroup]]:
    """Yield the mini-batches of a step: all rows of a group are in one of them."""
    size = len(groups) // count
    return (groups[first : first + size] for first in range(0, len(groups), size))


def shuffled(tasks: Sequence[Task], seed: int) -> Iterator[Task]:
    """Yield the tasks without end, in another order each time."""
    rng = Random(seed)
    while True:
        yield from rng.sample(tasks, len(tasks))

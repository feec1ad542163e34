"""TRL's rollout function: groups of rollouts, purified, graded and selected, as the columns that TRL trains on."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from cleaner_rl.purify import PurifyConfig
from cleaner_rl.resample import PlainConfig, RocConfig
from cleaner_rl.rollout import (
    ANSWER,
    ANSWER_ALONE,
    Engine,
    Purifier,
    RescueConfig,
    RescueTry,
    RolloutBudget,
    RolloutRunner,
    Sampling,
    Sandbox,
    TokenModel,
    open_runner,
)
from cleaner_rl.tasks import AnyGrader, Prompt, RewardScale, Task, check_gradable, load_prompt
from cleaner_rl.tools import derive_seed
from cleaner_rl.train.recipe.enums import Method
from cleaner_rl.train.recipe.settings import RocSettings
from cleaner_rl.train.record import RunFolder, TooManyFaultsError, step_figures
from cleaner_rl.train.rows import Exclusion, Graded, RescueRows, RowConfig, TrainRow, exclusion, group_rows
from cleaner_rl.train.rows.row import row_or_exclusion
from cleaner_rl.train.rows.verdicts import with_verdicts
from cleaner_rl.train.trl.checks import TrlRefusedError, check_groups, check_method, check_trainer, check_views
from cleaner_rl.train.trl.rewards import grader_of
from cleaner_rl.train.trl.serving import Source, source_of
from cleaner_rl.trajectory import Key, Phase, RepairMode, TokenSpan
from cleaner_sandbox import SessionRequest, open_sandbox

T = TypeVar("T")
REWARD = "cleaner_reward"
"""The column in which rewards reach the reward function; behind it, how those of the trainer's own functions begin."""
OpenSandbox = Callable[[], AbstractAsyncContextManager[Sandbox]]


class CleanerRollouts:
    """Samples, repairs, grades and selects rollouts for TRL's `GRPOTrainer`.

    It is the trainer's `rollout_func`, its `reward` is a reward function, and its `dataset` makes the data sets. Other
    reward functions of the trainer are asked about each rollout before it is repaired.
    During evaluation nothing is repaired, masked or selected. A rollout that broke gets no reward and an empty loss
    mask, so it is in no mean and no deviation. Use it as a context manager, which ends its sandbox.

    Examples:
        >>> from cleaner_rl.train.trl import CleanerRollouts
        >>> def train(model, tokenizer, tasks, config):
        ...     from trl import GRPOTrainer
        ...     with CleanerRollouts(tokenizer, method="hindsight", folder="runs/mine") as rollouts:
        ...         trainer = GRPOTrainer(
        ...             model=model, args=config, processing_class=tokenizer, train_dataset=rollouts.dataset(tasks),
        ...             rollout_func=rollouts, reward_funcs=rollouts.reward,
        ...         )
        ...         trainer.train()
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        method: Method | str = Method.HINDSIGHT,
        prompt: Prompt | str | Path = "stateless",
        purify: PurifyConfig | None = None,
        roc: RocSettings | None = None,
        rescue: RescueConfig | None = None,
        budget: RolloutBudget | None = None,
        sandbox: OpenSandbox = open_sandbox,
        request: SessionRequest | None = None,
        graders: Mapping[str, AnyGrader] | None = None,
        weights: Mapping[str, float] = ANSWER_ALONE,
        scale: RewardScale = RewardScale.SIGNED,
        template: Mapping[str, object] | None = None,
        name: str = "trl",
        folder: str | Path | None = None,
        seed: int = 1,
        max_fault_share: float = 0.2,
    ) -> None:
        """Set rollouts up; nothing is started before the first batch.

        Args:
            tokenizer: The tokenizer that the trainer has as `processing_class`.
            method: How failed calls are repaired and groups are sampled, by the names that recipes use.
            prompt: The prompt that describes the tool, or its name or file.
            purify: Settings of SAAR and hindsight; None: those of `PurifyConfig()`, with which hindsight repairs right
                rollouts only. Its `views` may be the clean one (`clean`), or one of the two, drawn by seed (`one`).
            roc: Settings of GRPO-RoC, which keeps `num_generations` of `roc.sample` rollouts.
            rescue: How groups are rescued in which every rollout is wrong; None: not at all. A rescue takes the place
                of the rollout that it began with.
            budget: What one rollout may use.
            sandbox: Opens the sandbox, for instance `lambda: open_sandbox(["http://host:8089"])`; by default a node is
                started on this machine.
            request: What is asked of the sandbox for each call or session, such as limits.
            graders: Graders of your own and plain functions, by name, beside those that are installed.
            weights: Weight of each grader in `reward`, such as `{"answer": 1.0, "failed_calls": 0.1}`.
            scale: Rewards of -1 and 1, or of 0 and 1, for grades without a score.
            template: Options of the chat template, such as `{"enable_thinking": False}`.
            name: Name of the run in its store.
            folder: Folder for the store and the metrics, for `cleaner view`; None: nothing is written.
            seed: Seed of every random choice.
            max_fault_share: The share of a batch's rollouts that may be faults; above it training stops.

        Raises:
            TrlRefusedError: TRL can't train with this method or with these views.
        """
        self._method = Method(method)
        check_method(self._method)
        self._rescue = rescue
        self._purify = PurifyConfig() if purify is None else purify
        check_views(self._purify, self._method)
        self._prompt = prompt if isinstance(prompt, Prompt) else load_prompt(prompt)
        self._roc = RocSettings() if roc is None else roc
        self._budget = RolloutBudget() if budget is None else budget
        self._sandbox, self._scale = sandbox, scale
        self._graders, self._weights = dict(graders or {}), weights
        self._in_sum: dict[str, float] | None = None
        """The weights of all graders in the trainer's sum, its own functions included; None before the first batch."""
        self._request = SessionRequest() if request is None else request
        self._tokenizer, self._template = tokenizer, template
        self._name, self._seed, self._max_fault_share = name, seed, max_fault_share
        self._record = RunFolder(folder, name)
        self._tasks: dict[str, Task] = {}
        self._drawn: Counter[tuple[Phase, int, str]] = Counter()
        self._figures: dict[str, float] = {}
        self._terms: dict[Key, Mapping[str, float]] = {}
        self._runner: RolloutRunner[TokenSpan] | None = None
        self._stack = AsyncExitStack()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    # ---- what TRL calls

    def dataset(self, tasks: Iterable[Task]) -> Any:
        """Return tasks as a `datasets.Dataset` for the trainer, to train or to evaluate on.

        TRL gives a rollout function nothing but prompts, so two tasks with the same prompt are refused.
        """
        from datasets import Dataset

        rows = []
        for task in tasks:
            messages = self._messages(task)
            known = self._tasks.setdefault(_key(messages), task)
            if known != task:
                raise TrlRefusedError(f"tasks '{known.id}' and '{task.id}' have the same prompt; leave one of them out")
            rows.append({"prompt": messages})
        return Dataset.from_list(rows)

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        """Return the rows of a batch of prompts, as TRL's `rollout_func`."""
        check_trainer(trainer)
        self._take_functions(trainer)
        training = bool(trainer.model.training)
        generations = trainer.num_generations if training else trainer.num_generations_eval
        check_groups(prompts, generations)
        tasks = [self._task(prompts[first]) for first in range(0, len(prompts), generations)]
        step = int(trainer.state.global_step)
        model = trainer.accelerator.unwrap_model(trainer.model)
        source = source_of(trainer, model, step)
        model.eval()
        try:
            rows = source.drive(self._start(self._batch(tasks, generations, source, step, training)))
        finally:
            model.train(training)
        return {**_columns(rows), **self._rewards(rows)}

    def reward(self, **columns: Any) -> list[float | None]:
        """Return the rewards of the rows, as TRL's reward function; None for a rollout that broke."""
        return self._read(REWARD, **columns)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the sandbox and the graders."""
        if self._loop is not None and self._thread is not None:
            self._start(self._stack.aclose()).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._loop = self._thread = self._runner = None

    # ---- ours

    def _start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start work on a loop in a thread of its own, where sandbox and graders live as long as this object."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="cleaner-rollouts", daemon=True)
            self._thread.start()
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _take_functions(self, trainer: Any) -> None:
        """Make the trainer's own reward functions graders, and let the trainer read what they said of raw rollouts."""
        if self._in_sum is not None:
            return
        self._in_sum = {}
        given = list(zip(trainer.reward_funcs, trainer.reward_func_names, trainer.reward_weights.tolist(), strict=True))
        for place, (function, name, weight) in enumerate(given):
            if function == self.reward:
                self._in_sum |= {each: weight * own for each, own in self._weights.items()}
                continue
            column = f"{REWARD}/{place}/{name}"
            self._graders[column] = grader_of(function, self._tokenizer, self._messages, trainer)
            self._in_sum[column] = weight
            trainer.reward_funcs[place] = partial(self._read, column)

    def _rewards(self, rows: Sequence[TrainRow | list[int]]) -> dict[str, list[float | None]]:
        """Return the column of `reward`, and of each function of the trainer; None for a rollout that broke."""
        terms = [self._terms[row.key] if isinstance(row, TrainRow) else None for row in rows]
        own = [
            None if each is None else sum(weight * each.get(name, 0.0) for name, weight in self._weights.items())
            for each in terms
        ]
        theirs = [name for name in self._in_sum or () if name.startswith(REWARD)]
        return {REWARD: own, **{name: [None if each is None else each[name] for each in terms] for name in theirs}}

    def _read(
        self, column: str, *, log_metric: Callable[[str, float], None] | None = None, **columns: Any
    ) -> list[float | None]:
        """Return a column of rewards, as a reward function of TRL's, and log the figures of the batch."""
        if log_metric is not None:
            for name, value in self._figures.items():
                log_metric(f"cleaner/{name}", value)
        rewards: list[float | None] = columns[column]
        return rewards

    def _messages(self, task: Task) -> list[dict[str, str]]:
        return [{"role": each.role, "content": each.content} for each in self._prompt.messages(task)]

    def _task(self, messages: Any) -> Task:
        task = self._tasks.get(_key(messages))
        if task is None:
            raise TrlRefusedError(
                "a prompt of the data set belongs to no task; make train_dataset and eval_dataset with rollouts.dataset"
            )
        return task

    async def _batch(
        self, tasks: Sequence[Task], generations: int, source: Source, step: int, training: bool
    ) -> list[TrainRow | list[int]]:
        """Return `generations` rows of each task. In the place of a rollout that broke is the prompt alone."""
        phase = Phase.TRAINING if training else Phase.EVALUATION
        resamples = training and self._method.resamples
        count = self._roc.sample if resamples else generations
        if count < generations:
            raise TrlRefusedError(f"roc.sample is {count}, fewer than the num_generations={generations} that are kept")
        async with source.opened() as (engine, window):
            runner = await self._runner_for(engine, window, step, phase)
            groups = await asyncio.gather(*[self._group(runner, task, count, step, phase) for task in tasks])
        rows: list[TrainRow | list[int]] = []
        stored: list[Graded] = []
        faults = 0
        for group, _ in groups:
            kept, told, broke = self._trained(group, generations) if training else _evaluated(group)
            stored += told
            faults += broke
            rows += [*kept, *[group[0].prompt.ids.tolist()] * (generations - len(kept))]
        rescues = [rescue for _, rescue in groups if rescue is not None]
        self._terms = {each.key: each.info.terms or {ANSWER: each.reward or 0.0} for each in stored}
        self._figures = step_figures(stored, rescues, faults, training)
        self._record.write(stored)
        if training:
            self._record.note(step + 1, self._figures)
        if faults > self._max_fault_share * len(stored):
            why = next((each.info.fault for each in stored if each.info.fault), "a token was not re-scored")
            raise TooManyFaultsError(
                f"{faults} of {len(stored)} rollouts were faults, more than max_fault_share={self._max_fault_share}: "
                f"{why}. Nothing of them was trained on"
            )
        return rows

    async def _group(
        self, runner: RolloutRunner[TokenSpan], task: Task, count: int, step: int, phase: Phase
    ) -> tuple[list[Graded], RescueTry[TokenSpan] | None]:
        """Return a group, and the rescue that was tried; if that found a rollout, it is the group's last."""
        first = self._drawn[phase, step, task.id]
        self._drawn[phase, step, task.id] += count + (runner.rescue is not None)
        # TRL counts the steps that are over; in a store a step has the number of its update.
        number = step + 1 if phase is Phase.TRAINING else step
        keys = [Key(self._name, number, task.id, first + place, phase) for place in range(count)]
        group = list(await asyncio.gather(*[runner.run_one(task, key) for key in keys]))
        rescue = await runner.try_rescue(task, group)
        return (group if rescue is None or rescue.rescued is None else [*group, rescue.rescued]), rescue

    async def _runner_for(self, engine: Engine, window: int, step: int, phase: Phase) -> RolloutRunner[TokenSpan]:
        """Return a runner on the present weights. The first call opens what all of them share."""
        if self._runner is None:
            self._runner = await self._opened(engine, window)
        runner = self._runner
        shared = runner.model
        assert isinstance(shared, TokenModel)
        # An evaluation draws alike at every step.
        drawn = (step,) if phase is Phase.TRAINING else ()
        return replace(
            runner,
            model=shared.served_by(engine, Sampling(), window),
            budget=self._budget,
            purifier=self._purifier(phase),
            rescue=self._rescue if phase is Phase.TRAINING else None,
            seed=derive_seed(self._seed, phase, *drawn),
        )

    async def _opened(self, engine: Engine, window: int) -> RolloutRunner[TokenSpan]:
        served = TokenModel.for_prompt(engine, self._tokenizer, self._prompt, window=window, template=self._template)
        sandbox = await self._stack.enter_async_context(self._sandbox())
        opened = open_runner(
            served,
            self._prompt,
            sandbox,
            request=self._request,
            graders=self._graders,
            weights=self._in_sum or self._weights,
            scale=self._scale,
        )
        runner: RolloutRunner[TokenSpan] = await self._stack.enter_async_context(opened)
        check_gradable(list(self._tasks.values()), runner.graders)
        return runner

    def _purifier(self, phase: Phase) -> Purifier | None:
        if phase is Phase.EVALUATION or not self._method.edits:
            return None
        mode = RepairMode.SAAR if self._method.saar else RepairMode.HINDSIGHT
        return Purifier(mode, self._purify, phase)

    def _trained(self, group: Sequence[Graded], generations: int) -> tuple[Sequence[TrainRow], list[Graded], int]:
        """Return the rows of a group to train on, the group with its verdicts, and how many faults it has."""
        roc = self._roc
        config: RocConfig | PlainConfig = PlainConfig()
        # TRL doesn't sample a group again. One that faults left too small for RoC is trained on as it is.
        if self._method.resamples and sum(exclusion(each) is None for each in group) >= generations:
            config = RocConfig(generations, roc.min_positive, roc.min_negative, roc.positives, roc.quality_of)
        masks = self._method.masks
        # TRL takes as many rows of a group as it asked for, and no more.
        rescues = RescueRows.REPLACE
        made = group_rows(group, RowConfig(config, self._seed, masks, views=self._purify.views, rescue_rows=rescues))
        return made.rows, with_verdicts(group, made, config), made.faults


def _evaluated(group: Sequence[Graded]) -> tuple[Sequence[TrainRow], list[Graded], int]:
    """The same of an evaluation, in which nothing is compared, masked or selected."""
    made = [row_or_exclusion(each) for each in group]
    return [each for each in made if isinstance(each, TrainRow)], list(group), made.count(Exclusion.FAULT)


def _key(messages: Iterable[Mapping[str, Any]]) -> str:
    return json.dumps([[each["role"], each["content"]] for each in messages])


def _columns(rows: Sequence[TrainRow | list[int]]) -> dict[str, list[Any]]:
    """Return rows as TRL takes them; a prompt alone gets a response of one token that is in no loss."""
    columns: dict[str, list[Any]] = {name: [] for name in ("prompt_ids", "completion_ids", "logprobs", "env_mask")}
    for row in rows:
        if isinstance(row, TrainRow):
            values = [
                row.prompt_ids.tolist(),
                row.response_ids.tolist(),
                row.logprobs.tolist(),
                row.loss_mask.astype(int).tolist(),
            ]
        else:
            values = [row, row[-1:], [0.0], [0]]
        for column, value in zip(columns.values(), values, strict=True):
            column.append(value)
    return columns

"""An environment of verifiers whose `finalize` purifies, compares and selects the rollouts of a task.

An episode has one rollout, which is purified and left to the trainer to compare; or a whole group, as in verifiers' own
`best-of-n`, whose rows and advantages are those of `train.rows`. A rollout that GRPO-RoC dropped is marked as not
trainable. One that broke is taken out of its group, in whose errors its own are; it is in no mean and no deviation.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any, Self

import verifiers.v1 as vf
from pydantic import Field, model_validator
from renderers import create_renderer
from renderers.base import load_tokenizer
from verifiers.v1.configs.client import resolve_api_key

from cleaner_rl.logs import Reading, purify_log
from cleaner_rl.purify import PurifyConfig, PurifyScope, RepairConfig, purify, refuse_wide_gaps, rescore
from cleaner_rl.resample import PlainConfig, RocConfig
from cleaner_rl.rollout import EngineFaultError
from cleaner_rl.rollout.engines import Address, VllmEngine
from cleaner_rl.tools import call_format
from cleaner_rl.train.recipe.enums import Method
from cleaner_rl.train.recipe.settings import RocSettings
from cleaner_rl.train.record import RunFolder
from cleaner_rl.train.rows import (
    Graded,
    RowConfig,
    RowGroup,
    TrainRow,
    View,
    Views,
    exclusion,
    group_rows,
    recovery_view,
    to_row,
)
from cleaner_rl.train.rows.verdicts import with_verdicts
from cleaner_rl.train.verifiers.traces import TraceReader, UnreadableTraceError, write_row
from cleaner_rl.trajectory import (
    Ids,
    Key,
    RepairMode,
    RolloutInfo,
    Scores,
    StopReason,
    Trajectory,
    Vocabulary,
    token_span,
)

OFFERED = (Method.GRPO, Method.MASK, Method.HINDSIGHT, Method.ROC, Method.HINDSIGHT_ROC)
"""Methods that run here. SAAR repairs while a rollout runs, and in verifiers the harness owns that loop."""
EXACT = {"temperature": (None, 1.0), "top_p": (None, 1.0), "top_k": (None, 0, -1), "min_p": (None, 0.0)}
EXACT |= {"repetition_penalty": (None, 1.0), "presence_penalty": (None, 0.0), "frequency_penalty": (None, 0.0)}
"""Sampling settings, each with the values at which tokens are sampled from the model's own distribution."""


class CleanerEnvConfig(vf.EnvConfig):  # type: ignore[misc]
    """Settings of `CleanerEnv`, beside those of every environment of verifiers (`env.*`)."""

    agent: vf.AgentConfig = vf.AgentConfig()
    """The one agent; its settings are those of a plain run (`env.agent.*`)."""
    method: Method = Method.HINDSIGHT
    """How failed calls are repaired and groups are sampled: grpo, mask, hindsight, roc or hindsight+roc."""
    rollouts: int = Field(1, ge=1)
    """Rollouts of an episode. With 1, the trainer compares episodes with each other; above 1, an episode is a group."""
    roc: RocSettings = RocSettings()
    """Settings of GRPO-RoC, which keeps `rollouts` of `roc.sample` rollouts."""
    views: Views = Views.CLEAN
    """Which view of a right rollout that hindsight repaired is trained on: `clean`, or `one` of the two, by seed."""
    mass: float | None = Field(None, gt=0, allow_inf_nan=False)
    """How much such a rollout counts, where any other counts 1. None: 1 as well."""
    max_logprob_gap: float | None = Field(None, gt=0)
    """Refuse a repair whose moved tokens lose more log-prob than this on average; None refuses no repair."""
    scope: PurifyScope = PurifyScope.SUCCESSFUL
    """Which rollouts are repaired: only those that solved the task, or all."""
    repair: RepairConfig = RepairConfig()
    """How a correction enters the history."""
    stateless: bool = False
    """Whether a call leaves nothing behind for later ones, as with a fresh process per call. Every working correction
    is then taken, as in our own rollouts. Otherwise a repair needs a warrant from the text of the calls, as in logs."""
    threshold: float = 1.0
    """The reward from which on a rollout has solved its task."""
    call_format: str = "hermes"
    """How the model writes its calls."""
    python_tools: tuple[str, ...] = ()
    """Names of tools that run Python, beside the usual ones."""
    folder: str | None = None
    """Folder for a store of all rollouts, which `cleaner view` opens; None: nothing is written."""
    name: str = "verifiers"
    """Name of the run in its store."""
    seed: int = 1
    """Seed of the draws of RoC and of `views`."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.method.two_views:
            raise ValueError(
                f"method={self.method.value!r} gives a rollout two rows, and a trace holds one: take "
                "method='hindsight' and views='one'"
            )
        if self.method not in OFFERED:
            raise ValueError(f"method={self.method.value!r} doesn't run on verifiers; take one of {', '.join(OFFERED)}")
        if self.rollouts == 1 and (self.method.resamples or self.method.masks):
            raise ValueError(
                f"method={self.method.value!r} compares the rollouts of a group, and rollouts=1 has none; set rollouts "
                "to the size of a group"
            )
        if self.method.resamples and self.roc.sample < self.rollouts:
            raise ValueError(f"roc.sample={self.roc.sample} is fewer than the rollouts={self.rollouts} that are kept")
        if self.views.two_rows:
            raise ValueError(f"views={self.views.value!r} gives a rollout two rows, and a trace holds one: take 'one'")
        if self.views is Views.ONE and (not self.method.hindsight or self.rollouts == 1):
            raise ValueError("views='one' needs repairs in hindsight and a group; set method and rollouts")
        return self


class CleanerEnv(vf.Env[CleanerEnvConfig]):  # type: ignore[misc]
    """Runs a taskset of verifiers and gives the trainer purified traces.

    Export it beside your taskset, and verifiers takes it for that taskset's environment. With an eval client, whose
    traces have no tokens, rollouts are neither repaired nor selected.

    Example:
        ```python
        # my_taskset.py, run with --env.taskset.id my-taskset --env.method hindsight+roc --env.rollouts 8
        from cleaner_rl.train.verifiers import CleanerEnv

        __all__ = ["CleanerEnv", "MyTaskset"]
        ```
    """

    def __init__(self, config: CleanerEnvConfig) -> None:
        super().__init__(config)
        self._readers: dict[str, TraceReader] = {}
        self._episodes: Counter[str] = Counter()
        self._record = RunFolder(config.folder, config.name)

    async def run(self, task: Any, agents: Any) -> None:
        """Run the rollouts of a task; one that fails is data, and ends no other."""
        config, context = self.config, agents.agent.ctx
        training = isinstance(context.client, vf.TrainClientConfig)
        if training and config.method.edits:
            _check_sampling(context.sampling)
        count = config.roc.sample if training and config.method.resamples else config.rollouts
        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(agents.agent.run(task))

    async def finalize(self, task: Any, episode: Any) -> None:
        """Purify the rollouts of a task, compare them, and put traces with the rows into the episode."""
        traces = list(episode.traces)
        if not isinstance(traces[0].agent.config.client, vf.TrainClientConfig):
            return
        step = self._episodes[task.key]
        self._episodes[task.key] += 1
        keys = [Key(self.config.name, step, task.key, number) for number in range(len(traces))]
        group = await asyncio.gather(*map(self._finished, traces, keys))
        if all(each.stop_reason is StopReason.DROPPED for each in group):
            raise UnreadableTraceError(group[0].info.grade)
        if self.config.rollouts == 1:
            rows = [to_row(each) for each in group]
        else:
            made, config = self._compared(group)
            group = with_verdicts(group, made, config)
            by_key = {row.key: row for row in made.rows}
            rows = [by_key.get(each.key) for each in group]
        await asyncio.to_thread(self._record.write, group)
        for place, (trace, trajectory, row) in enumerate(zip(traces, map(_shown, group, rows), rows, strict=True)):
            trace.agent.trainable = trace.agent.trainable and row is not None
            trace.record_metrics(
                {
                    "cleaner_failed_turns": sum(turn.failed for turn in trajectory.turns),
                    "cleaner_repairs": len(trajectory.edits),
                    "cleaner_trained": row is not None,
                }
            )
            if row is not None:
                episode.traces[place] = write_row(trace, trajectory, row)
        # verifiers calls an episode failed if one of its traces is, and prime-rl then trains on none of them.
        complete = [trace for trace in episode.traces if trace.ok]
        if complete:
            episode.errors += [error for trace in episode.traces if not trace.ok for error in trace.errors]
            episode.traces[:] = complete

    # ---- ours

    async def _finished(self, trace: Any, key: Key) -> Graded:
        """Return the rollout of a trace, purified and re-scored."""
        try:
            reader = await self._reader(trace.agent.config)
            rollout = reader.read(trace, key, self.config.threshold)
        except UnreadableTraceError as error:
            info = RolloutInfo(grade=str(error), session=trace.id)
            return Trajectory(token_span("", ()), key=key, stop_reason=StopReason.DROPPED, info=info)
        if self.config.method.hindsight and rollout.usable and rollout.stop_reason is not StopReason.TIME_LIMIT:
            rollout = await self._rescored(self._purified(rollout), trace.agent.config.client)
        return replace(rollout, info=replace(rollout.info, log=None))

    def _purified(self, rollout: Graded) -> Graded:
        config = self.config
        if config.stateless:
            return purify(rollout, PurifyConfig(scope=config.scope, repair=config.repair), RepairMode.HINDSIGHT)
        if config.scope is PurifyScope.SUCCESSFUL and not rollout.success:
            return rollout
        return purify_log(rollout, config.repair).trajectory

    async def _rescored(self, rollout: Graded, client: Any) -> Graded:
        """Return the rollout with log-probs of moved tokens, by the engine that sampled it; a fault if it can't."""
        if not rollout.edits:
            return rollout
        key = resolve_api_key(client)
        async with Address(client.base_url.rstrip("/").removesuffix("/v1"), token=key) as address:
            engine = VllmEngine(address)

            async def score(prefix_T: Ids, suffix_T: Ids) -> Scores:  # noqa: N803 - shapes are part of names
                return await engine.score(prefix_T, suffix_T, request=str(rollout.key))

            bound = self.config.max_logprob_gap
            try:
                if bound is None:
                    return await rescore(rollout, score)
                return await refuse_wide_gaps(rollout, score, bound)
            except* EngineFaultError as faults:
                fault = f"re-scoring: {faults.exceptions[0]}"
        return replace(rollout, stop_reason=StopReason.FAULT, info=replace(rollout.info, fault=fault))

    async def _reader(self, agent: Any) -> TraceReader:
        """Return the reader of a model's traces; its tokenizer is loaded once."""
        client = agent.client
        model = client.renderer_model_name or agent.model
        if model not in self._readers:
            self._readers[model] = await asyncio.to_thread(self._make_reader, model, client.renderer)
        return self._readers[model]

    def _make_reader(self, model: str, renderer: Any) -> TraceReader:
        tokenizer = load_tokenizer(model)
        return TraceReader(
            Vocabulary.from_byte_level(tokenizer.get_vocab(), tokenizer.get_added_vocab()),
            frozenset(create_renderer(tokenizer, renderer).get_stop_token_ids()),
            call_format(self.config.call_format),
            Reading(self.config.python_tools, run=self.config.name),
        )

    def _compared(self, group: list[Graded]) -> tuple[RowGroup, RocConfig | PlainConfig]:
        """Return the rows of a group. One that faults left too small for RoC is trained on as it is."""
        config: RocConfig | PlainConfig = PlainConfig()
        settings, keep = self.config.roc, self.config.rollouts
        if self.config.method.resamples and sum(exclusion(each) is None for each in group) >= keep:
            config = RocConfig(
                keep, settings.min_positive, settings.min_negative, settings.positives, settings.quality_of
            )
        chosen = RowConfig(
            config,
            self.config.seed,
            mask_failed=self.config.method.masks,
            views=self.config.views,
            mass=self.config.mass,
        )
        return group_rows(group, chosen), config


def _shown(trajectory: Graded, row: TrainRow | None) -> Graded:
    """Return a rollout in the view that its row shows."""
    raw = recovery_view(trajectory) if row is not None and row.view is View.RECOVERY else None
    return trajectory if raw is None else raw


def _check_sampling(sampling: Any) -> None:
    given = sampling.model_dump()
    wrong = [f"{name}={given[name]}" for name, allowed in EXACT.items() if given.get(name) not in allowed]
    if wrong:
        raise ValueError(
            f"{', '.join(wrong)}: moved tokens are scored at temperature 1 over all tokens, so rollouts must be "
            "sampled so; leave these settings out, or set method = 'grpo'"
        )

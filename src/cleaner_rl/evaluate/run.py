"""Runs a model over sets of problems: each one some times alone, some times with repair, some times after a failure.

The runs with and without repair have the same seeds, so they are the same up to the first failure, and what is the same
is sampled once (`reuse`): their difference is repair's doing.

A rollout whose engine or tool broke is sampled again; one that is complete is only ever graded again. Where a fault
stays, it is reported apart.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from cleaner_rl import __version__
from cleaner_rl.evaluate.cache import cache_folder, fingerprint, marked, model_identity, open_cache
from cleaner_rl.evaluate.measures import Sample, measure
from cleaner_rl.evaluate.recovery import (
    KINDS,
    Failure,
    Recovered,
    failures,
    recovered,
    score_recovery,
    unwritable,
    with_failure,
)
from cleaner_rl.evaluate.report import write_report
from cleaner_rl.evaluate.results import Evaluation, Repair, ResultsError, read_results
from cleaner_rl.evaluate.reuse import is_reused, reused, with_time
from cleaner_rl.evaluate.scores import score_set
from cleaner_rl.purify import OnUnrepaired, PurifyConfig
from cleaner_rl.rollout import Journal, Purifier, RolloutRunner, finished, first_failure, with_turns
from cleaner_rl.tasks import Prompt, Task, check_gradable, load_sets
from cleaner_rl.tools import derive_seed
from cleaner_rl.trajectory import AnyTrajectory, Key, Phase, RepairMode, Trajectory


class RunMode(StrEnum):
    """How a problem is run."""

    OFF = "off"
    ON = "on"
    RECOVERY = "recovery"

    @classmethod
    def of(cls, key: Key) -> RunMode:
        """Return how a rollout in the store was run."""
        return cls(key.run.partition("-")[0])


@dataclass(frozen=True, slots=True)
class EvalPlan:
    """The sets, samples and settings of one evaluation."""

    sets: Mapping[str, Sequence[Task]]
    samples: int = 16
    repairs: tuple[Repair, ...] = (Repair.OFF, Repair.ON)
    failures: int = 0
    """Failures to inject per problem; 0: no recovery benchmark."""
    config: PurifyConfig = field(default_factory=PurifyConfig)
    seed: int = 0
    skipped: str = ""
    """Rows of the sets that are no tasks, in words; empty if there are none."""
    sources: tuple[str, ...] = ()
    """Names by which the sets were loaded, for whoever loads them again."""
    limit: int | None = None
    """Problems of each set that were asked for, the first ones; None: all."""

    def __post_init__(self) -> None:
        if self.samples < 1 or self.failures < 0 or not self.repairs:
            raise ValueError("an evaluation needs at least one sample, and repair off, on, or both")
        if self.config.on_unrepaired is OnUnrepaired.DROP:
            raise ValueError("an evaluation can't drop the rollouts that fail: the rest would look better than it is")
        tasks = [task.id for some in self.sets.values() for task in some]
        if len(set(tasks)) != len(tasks):
            raise ValueError(
                "two problems have the same id; evaluate a set once, and give own problems ids of their own"
            )

    def jobs(self) -> Iterator[EvalJob]:
        """Yield all jobs; those with the same prompt are close together, because engines cache prefixes."""
        repaired, broken = fingerprint(_repair_of(self.config))[:6], fingerprint({"kinds": str(KINDS)})[:6]
        runs = {RunMode.OFF: "off", RunMode.ON: f"on-{repaired}", RunMode.RECOVERY: f"recovery-{broken}"}
        elsewhere = derive_seed(self.seed, RunMode.RECOVERY)
        for task in (task for some in self.sets.values() for task in some):
            for number in range(self.samples):
                for mode in map(RunMode, self.repairs):
                    yield EvalJob(mode, task, Key(runs[mode], 0, task.id, number, Phase.EVALUATION), self.seed)
            for number, failure in enumerate(failures(task, self.failures, seed=self.seed)):
                key = Key(runs[RunMode.RECOVERY], 0, task.id, number, Phase.EVALUATION)
                yield EvalJob(RunMode.RECOVERY, task, key, elsewhere, failure)

    @property
    def tasks(self) -> dict[str, Task]:
        """Return all problems by their ids."""
        return {task.id: task for some in self.sets.values() for task in some}


INJECTED = 4
"""Failures that the recovery benchmark injects into each problem, where nobody says otherwise."""


def load_plan(
    sets: Iterable[str],
    prompt: Prompt,
    *,
    samples: int = 16,
    repairs: tuple[Repair, ...] = (Repair.OFF, Repair.ON),
    config: PurifyConfig = PurifyConfig(),  # noqa: B008 - frozen
    failures: int | None = None,
    seed: int = 0,
    limit: int | None = None,
) -> EvalPlan:
    """Return the plan for sets as a command line names them (see `tasks.load_named`).

    `failures`: how many the recovery benchmark injects into each problem; None: as many as usual, or none where the
    prompt's tool doesn't run Python. `limit`: use the first problems of each set only, this many.

    Examples:
        >>> import json, pathlib, tempfile
        >>> from cleaner_rl.evaluate import load_plan
        >>> from cleaner_rl.tasks import Message, Task, load_prompt
        >>> task = Task("sum", (Message("user", "What is 1 + 1?"),), grader="math", truth="2")
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "mine.jsonl"
        >>> _ = file.write_text(json.dumps(task.to_json()))
        >>> plan = load_plan([str(file)], load_prompt("stateless"), samples=4)
        >>> [(name, len(tasks)) for name, tasks in plan.sets.items()], plan.samples
        ([('mine', 1)], 4)
    """
    why = unwritable(prompt)
    if failures and why:
        raise ValueError(f"no failures can be injected (--recovery {failures}): {why}; leave the option out")
    if failures is None:
        failures = 0 if why else INJECTED
    names = tuple(sets)
    loaded = load_sets(names, seed=seed)
    return EvalPlan(
        {name: each.tasks[:limit] for name, each in loaded.items()},
        samples,
        repairs,
        failures,
        config,
        seed,
        ", ".join(f"{name}: {len(each.skipped)}" for name, each in loaded.items() if each.skipped),
        names,
        limit,
    )


@dataclass(frozen=True, slots=True)
class EvalJob:
    """One rollout to be made."""

    mode: RunMode
    task: Task
    key: Key
    """Its name in the store. The run says how: a repair with other settings is another run."""
    seed: int
    """With and without repair the same; after a failure another."""
    failure: Failure | None = None


@dataclass(slots=True)
class EvalProgress:
    """What has come of the jobs so far."""

    samples: dict[RunMode, dict[Key, Sample]] = field(default_factory=lambda: {mode: {} for mode in RunMode})
    recovered: dict[Key, Recovered] = field(default_factory=dict)

    def add(self, trajectory: AnyTrajectory) -> None:
        """Take a finished rollout in."""
        mode = RunMode.of(trajectory.key)
        if mode is RunMode.RECOVERY:
            self.recovered[trajectory.key] = recovered(trajectory)
        else:
            self.samples[mode][trajectory.key] = measure(trajectory)

    def __contains__(self, key: Key) -> bool:
        return key in self.recovered or any(key in some for some in self.samples.values())

    def results(self, plan: EvalPlan, model: str, settings: Mapping[str, object]) -> Evaluation:
        """The figures."""
        sets = []
        for name, tasks in plan.sets.items():
            ids = {task.id for task in tasks}
            runs: dict[Repair, Sequence[Sample]] = {
                repair: [each for each in self.samples[RunMode(repair)].values() if each.task in ids]
                for repair in plan.repairs
            }
            if any(task.grader == "code" for task in tasks):  # hardly two programs are the same: they can't vote
                runs = {repair: [replace(each, answer=None) for each in some] for repair, some in runs.items()}
            sets.append(score_set(name, runs, plan.samples, seed=plan.seed))
        after = score_recovery(self.recovered.values(), seed=plan.seed) if self.recovered else None
        return Evaluation(model, settings, tuple(sets), after)


Done = Callable[[AnyTrajectory, bool], None]
"""Called with each rollout, and whether nothing was sampled for it now."""


async def evaluate(
    plan: EvalPlan,
    runner: RolloutRunner[Any],
    out: Path,
    *,
    name: str,
    model: str,
    settings: Mapping[str, object] | None = None,
    cache: Path | None = None,
    done: Done = lambda _trajectory, _cached: None,
) -> Evaluation:
    """Evaluate a model by a plan, and write results.json, report.md and report.html into a folder.

    Rollouts are kept from one call to the next: an evaluation that was stopped continues, and more samples or sets add
    to what is there.

    Args:
        plan: The problems, how often each is run, and with which repair.
        runner: What runs them; its purifier and its seed are the plan's.
        out: The folder of the report.
        name: What to call the model or checkpoint. Results of another name in `out` are refused.
        model: The model's folder or hub name, by which its rollouts are known in the cache.
        settings: What else the figures depend on, for the report and for the cache.
        cache: Where rollouts are kept; default: `trajectories` in `out`.
        done: Called with each rollout, and with whether it was there before or is one without repair, used again.

    Raises:
        AnotherModelError: `out` holds the results of another model.
        UngradableError: Some problems can't be graded; nothing was sampled.

    Examples:
        >>> import asyncio, pathlib
        >>> from cleaner_rl.evaluate import evaluate, load_plan, summary_text
        >>> from cleaner_rl.rollout import Connection, open_runner
        >>> from cleaner_sandbox import open_sandbox
        >>> from cleaner_rl.tasks import load_prompt
        >>> async def main() -> None:
        ...     name, prompt = "Qwen/Qwen3-4B", load_prompt("stateless")
        ...     model = Connection(("http://127.0.0.1:8000",), name)
        ...     async with open_sandbox() as sandbox, open_runner(model, prompt, sandbox) as runner:
        ...         plan = load_plan(["mine.jsonl"], prompt, samples=4)
        ...         found = await evaluate(plan, runner, pathlib.Path("evals/mine"), name=name, model=name)
        ...         print(summary_text(found))
        >>> asyncio.run(main())  # doctest: +SKIP
    """
    refuse_another_model(out, name)
    check_gradable(plan.tasks.values(), runner.graders)
    shown: dict[str, object] = {
        "prompt": runner.prompt.name,
        "turns": runner.budget.turns,
        "tokens": runner.budget.tokens,
        "window": runner.model.window // runner.model.unit,
        "seed": plan.seed,
        **(settings or {}),
        "cleaner-rl": __version__,
    }
    identity = {**model_identity(model), "name": name, **shown, "words": fingerprint(asdict(runner.prompt))}
    kept = cache or out / "trajectories"
    with open_cache(kept, identity, plan.tasks) as journal:
        progress = await run_plan(plan, runner, journal, done)
    more = {"samples": plan.samples, "attempts": plan.config.attempts, "recovery": plan.failures}
    more |= {"limit": plan.limit} if plan.limit is not None else {}
    sources = {"tasks": list(plan.sources)} if plan.sources else {}
    skipped = {"rows that are not tasks": plan.skipped} if plan.skipped else {}
    result = progress.results(plan, name, {**sources, **shown, **more, "concurrency": runner.concurrency, **skipped})
    result = replace(result, store=cache_folder(kept, identity, out))
    write_report(result, out)
    return result


class AnotherModelError(ValueError):
    """The folder holds the results of another model."""


def refuse_another_model(out: Path, name: str) -> None:
    """Raise `AnotherModelError` if a folder holds the results of another model.

    Checkpoints are in folders whose last name is often the same; one's results must not replace another's.
    """
    with suppress(ResultsError):
        there = read_results(out / "results.json").model
        if there != name:
            raise AnotherModelError(
                f"{out} holds the results of {there}, and this is {name}: choose another folder (--out), or give this "
                "model a name of its own (--name)"
            )


async def run_plan(
    plan: EvalPlan, runner: RolloutRunner[Any], journal: Journal, done: Done = lambda _trajectory, _cached: None
) -> EvalProgress:
    """Run what the journal doesn't hold yet, and return the state of all of it. The plan says how it is purified."""
    wanted = {job.key: job for job in plan.jobs()}
    progress = EvalProgress()
    alone = _Alone(wanted, journal.done)
    await journal.resume(
        wanted, lambda trajectory: _grade(wanted[trajectory.key], trajectory, plan, runner), runner.concurrency
    )
    for trajectory in journal.stored():
        if trajectory.key in wanted and journal.counts(trajectory) and trajectory.key not in progress:
            progress.add(trajectory)
            alone.add(trajectory)
            done(trajectory, True)

    async def run_one(task: Task, key: Key) -> Trajectory[Any]:
        job = wanted[key]
        made = marked(await _run(job, plan, runner, await alone.of(job)), task)
        alone.add(made)
        return made

    def count(trajectory: AnyTrajectory) -> None:
        progress.add(trajectory)
        done(trajectory, is_reused(trajectory))

    left = _late([job for key, job in wanted.items() if key not in journal.done], runner.concurrency)
    await journal.keep(finished([(job.task, job.key) for job in left], run_one, runner.concurrency), count)
    return progress


class _Alone:
    """The rollouts without repair, for those with repair that are still to be made of them."""

    def __init__(self, wanted: Mapping[Key, EvalJob], done: Container[Key]) -> None:
        keys = {(key.task, key.rollout): key for key, job in wanted.items() if job.mode is RunMode.OFF}
        self._needed: dict[Key, asyncio.Future[AnyTrajectory]] = {
            keys[key.task, key.rollout]: asyncio.get_running_loop().create_future()
            for key, job in wanted.items()
            if job.mode is RunMode.ON and key not in done and (key.task, key.rollout) in keys
        }
        self._keys = keys

    def add(self, trajectory: AnyTrajectory) -> None:
        """Take one in, if it is needed."""
        if trajectory.key in self._needed:
            self._needed[trajectory.key].set_result(trajectory)

    async def of(self, job: EvalJob) -> AnyTrajectory | None:
        """Return the rollout without repair for a job with repair, once it is there; None if there is none."""
        key = self._keys.get((job.key.task, job.key.rollout))
        if job.mode is not RunMode.ON or key is None:
            return None
        found = await self._needed[key]
        del self._needed[key]  # it may be large
        return None if found.broken else found


def _repair_of(config: PurifyConfig) -> dict[str, Any]:
    """Return what decides on repairs: trainers alone ask for the rest, and it must not rename an evaluation's runs."""
    settled = replace(config, scope=config.scope_of(RepairMode.SAAR))
    return {name: value for name, value in asdict(settled).items() if name not in ("mass", "max_logprob_gap", "views")}


def _late(jobs: Iterable[EvalJob], by: int) -> Iterator[EvalJob]:
    """The jobs with those with repair a little later, when those that they are made of are finished."""
    waiting: deque[EvalJob] = deque()
    for job in jobs:
        if job.mode is RunMode.ON:
            waiting.append(job)
        else:
            yield job
        if len(waiting) > by:
            yield waiting.popleft()
    yield from waiting


async def _grade(job: EvalJob, trajectory: AnyTrajectory, plan: EvalPlan, runner: RolloutRunner[Any]) -> AnyTrajectory:
    return await _runner_of(job, plan, runner).grade_one(job.task, trajectory)


def _runner_of(job: EvalJob, plan: EvalPlan, runner: RolloutRunner[Any]) -> RolloutRunner[Any]:
    config = replace(plan.config, in_evaluation=job.mode is RunMode.ON)
    purifier = Purifier(config=config, phase=Phase.EVALUATION, rescore=False)
    return replace(runner, purifier=purifier, seed=job.seed)


async def _run(job: EvalJob, plan: EvalPlan, runner: RolloutRunner[Any], alone: AnyTrajectory | None) -> AnyTrajectory:
    own = _runner_of(job, plan, runner)
    if alone is not None:
        failed = first_failure(alone)
        if failed is None:
            return reused(alone, job.key)
        given = alone.turns[: failed + 1]
        made = await replace(own, model=with_turns(runner.model, given)).run_one(job.task, job.key)
        return with_time(made, alone, len(given))
    if job.failure is None:
        return await own.run_one(job.task, job.key)
    model = with_failure(runner.model, job.failure, runner.prompt)
    trajectory = await replace(own, model=model).run_one(job.task, job.key)
    return replace(trajectory, info=replace(trajectory.info, injected=job.failure.kind))

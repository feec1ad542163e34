"""Runs a model over sets of problems: each one some times alone, some times with repair, some times after a failure.

The runs with and without repair have the same seeds, so they are the same up to the first failure: their difference is
repair's doing, as far as the engine repeats itself.

A rollout that ended in a fault is tried again; one that keeps ending so is reported apart.

Limits: one process, one event loop. More speed is a matter of the engine behind the model, and of `concurrency`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from cleaner_rl.evaluate.cache import Cache
from cleaner_rl.evaluate.measures import Sample, fault_of, measure
from cleaner_rl.evaluate.recovery import KIND, Failure, PutIn, Recovered, failures, recovered, score_recovery
from cleaner_rl.evaluate.results import Evaluation, Repair
from cleaner_rl.evaluate.scores import score_set
from cleaner_rl.purify import Phase, PurifyPolicy
from cleaner_rl.rollout import Model, Purifier, RolloutBudget, Toolbox, finish, rollout
from cleaner_rl.tasks import Grader, Prompt, Task
from cleaner_rl.tools import derive_seed
from cleaner_rl.trajectory import AnyTrajectory, Key, Seeds, Trajectory


class Way(StrEnum):
    """How a problem is run; the name of the run in the store."""

    OFF = "off"
    ON = "on"
    RECOVERY = "recovery"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be run."""

    sets: Mapping[str, Sequence[Task]]
    samples: int = 16
    repairs: tuple[Repair, ...] = (Repair.OFF, Repair.ON)
    failures: int = 0
    """Failures to put in, for each problem; 0: no recovery benchmark."""
    policy: PurifyPolicy = field(default_factory=PurifyPolicy)
    seed: int = 0

    def __post_init__(self) -> None:
        if self.samples < 1 or self.failures < 0 or not self.repairs:
            raise ValueError("an evaluation needs at least one sample, and repair off, on, or both")
        tasks = [task.id for some in self.sets.values() for task in some]
        if len(set(tasks)) != len(tasks):
            raise ValueError(
                "two problems have the same id; evaluate a set once, and give own problems ids of their own"
            )

    def jobs(self) -> Iterator[Job]:
        """All of it; what has the same prompt is close together, because engines keep what they have read."""
        for task in (task for some in self.sets.values() for task in some):
            for number in range(self.samples):
                yield from (Job(Way(repair), task, number) for repair in self.repairs)
            for number, failure in enumerate(failures(task, self.failures, seed=self.seed)):
                yield Job(Way.RECOVERY, task, number, failure)

    @property
    def tasks(self) -> dict[str, Task]:
        """All problems by their ids."""
        return {task.id: task for some in self.sets.values() for task in some}


@dataclass(frozen=True, slots=True)
class Job:
    """One rollout to be made."""

    way: Way
    task: Task
    number: int
    failure: Failure | None = None

    @property
    def key(self) -> Key:
        """Its name in the store."""
        return Key(self.way, 0, self.task.id, self.number)

    def seeds(self, seed: int) -> Seeds:
        """With and without repair the same; after a failure others."""
        own = derive_seed(seed, Way.RECOVERY) if self.way is Way.RECOVERY else seed
        return Seeds(own, self.task.id, self.number)


@dataclass(frozen=True, slots=True)
class Bench:
    """What a model is judged with."""

    model: Model[Any]
    toolbox: Toolbox
    graders: Mapping[str, Grader]
    prompt: Prompt
    budget: RolloutBudget = field(default_factory=RolloutBudget)
    concurrency: int = 64
    retries: int = 2
    """How often a rollout that ended in a fault is tried again."""

    async def run(self, job: Job, plan: Plan) -> AnyTrajectory:
        """One job, tried again as long as something else than the model fails."""
        for _ in range(self.retries):
            trajectory = await self._once(job, plan)
            if not fault_of(trajectory):
                return trajectory
        return await self._once(job, plan)

    async def _once(self, job: Job, plan: Plan) -> AnyTrajectory:
        model: Model[Any] = self.model if job.failure is None else PutIn(self.model, job.failure, self.prompt)
        seeds = job.seeds(plan.seed)
        policy = replace(plan.policy, in_evaluation=job.way is Way.ON)
        purifier = Purifier(policy=policy, phase=Phase.EVALUATION, rescore=False)
        made: Trajectory[Any] = await rollout(
            job.task,
            job.key,
            prompt=self.prompt,
            model=model,
            toolbox=self.toolbox,
            seeds=seeds,
            budget=self.budget,
            purifier=purifier,
        )
        graded = await finish(
            made, job.task, model=model, toolbox=self.toolbox, graders=self.graders, seeds=seeds, purifier=None
        )
        return graded if job.failure is None else replace(graded, extra={**graded.extra, KIND: job.failure.kind})


@dataclass(slots=True)
class Found:
    """What has come of the jobs so far."""

    samples: dict[Way, dict[Key, Sample]] = field(default_factory=lambda: {way: {} for way in Way})
    recovered: dict[Key, Recovered] = field(default_factory=dict)

    def add(self, trajectory: AnyTrajectory) -> None:
        """Take a finished rollout in."""
        if trajectory.key.run == Way.RECOVERY:
            self.recovered[trajectory.key] = recovered(trajectory)
        else:
            self.samples[Way(trajectory.key.run)][trajectory.key] = measure(trajectory)

    def __contains__(self, key: Key) -> bool:
        return key in self.recovered or any(key in some for some in self.samples.values())

    def results(self, plan: Plan, model: str, settings: Mapping[str, object]) -> Evaluation:
        """The figures."""
        sets = []
        for name, tasks in plan.sets.items():
            ids = {task.id for task in tasks}
            arms: dict[Repair, Sequence[Sample]] = {
                repair: [each for each in self.samples[Way(repair)].values() if each.task in ids]
                for repair in plan.repairs
            }
            sets.append(score_set(name, arms, plan.samples, seed=plan.seed))
        after = score_recovery(self.recovered.values(), seed=plan.seed) if self.recovered else None
        return Evaluation(model, settings, tuple(sets), after)


Done = Callable[[AnyTrajectory, bool], None]
"""Told of each rollout, and whether it was there before."""


async def evaluate(plan: Plan, bench: Bench, caches: Mapping[Way, Cache], done: Done) -> Found:
    """Run what isn't there yet, and say what came of all of it."""
    wanted = {job.key: job for job in plan.jobs()}
    found = Found()
    for cache in caches.values():
        for trajectory in cache.judged(plan.tasks):
            if trajectory.key in wanted:
                found.add(trajectory)
                done(trajectory, True)
    left = (job for key, job in wanted.items() if key not in found)

    async def work() -> None:
        for job in left:
            trajectory = await bench.run(job, plan)
            caches[job.way].add(trajectory, job.task)
            found.add(trajectory)
            done(trajectory, False)

    async with asyncio.TaskGroup() as group:
        for _ in range(bench.concurrency):
            group.create_task(work())
    return found


def open_caches(folder: Path, settings: Mapping[Way, Mapping[str, object]]) -> dict[Way, Cache]:
    """A cache for each way, so that a changed repair leaves what was run without it in place."""
    return {way: Cache(folder, values) for way, values in settings.items()}

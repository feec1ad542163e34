"""Runs a model over sets of problems: each one some times alone, some times with repair, some times after a failure.

The runs with and without repair have the same seeds, so they are the same up to the first failure: their difference is
repair's doing, as far as the engine repeats itself.

A rollout that ended in a fault is tried again; one that keeps ending so is reported apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from cleaner_rl.evaluate.cache import fingerprint, marked
from cleaner_rl.evaluate.measures import Sample, measure
from cleaner_rl.evaluate.recovery import KIND, KINDS, Failure, PutIn, Recovered, failures, recovered, score_recovery
from cleaner_rl.evaluate.results import Evaluation, Repair
from cleaner_rl.evaluate.scores import score_set
from cleaner_rl.purify import Phase, PurifyPolicy, Unrepaired
from cleaner_rl.rollout import Model, Purifier
from cleaner_rl.rollout.journal import Journal
from cleaner_rl.rollout.many import Bench, roll_out
from cleaner_rl.tasks import Task
from cleaner_rl.tools import derive_seed
from cleaner_rl.trajectory import AnyTrajectory, Key


class Way(StrEnum):
    """How a problem is run."""

    OFF = "off"
    ON = "on"
    RECOVERY = "recovery"

    @classmethod
    def of(cls, key: Key) -> Way:
        """How a rollout in the store was run."""
        return cls(key.run.partition("-")[0])


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
        if self.policy.unrepaired is Unrepaired.DROP:
            raise ValueError("an evaluation can't drop the rollouts that fail: the rest would look better than it is")
        tasks = [task.id for some in self.sets.values() for task in some]
        if len(set(tasks)) != len(tasks):
            raise ValueError(
                "two problems have the same id; evaluate a set once, and give own problems ids of their own"
            )

    def jobs(self) -> Iterator[Job]:
        """All of it; what has the same prompt is close together, because engines keep what they have read."""
        mended, broken = fingerprint(asdict(self.policy))[:6], fingerprint({"kinds": str(KINDS)})[:6]
        runs = {Way.OFF: "off", Way.ON: f"on-{mended}", Way.RECOVERY: f"recovery-{broken}"}
        elsewhere = derive_seed(self.seed, Way.RECOVERY)
        for task in (task for some in self.sets.values() for task in some):
            for number in range(self.samples):
                for way in map(Way, self.repairs):
                    yield Job(way, task, Key(runs[way], 0, task.id, number), self.seed)
            for number, failure in enumerate(failures(task, self.failures, seed=self.seed)):
                yield Job(Way.RECOVERY, task, Key(runs[Way.RECOVERY], 0, task.id, number), elsewhere, failure)

    @property
    def tasks(self) -> dict[str, Task]:
        """All problems by their ids."""
        return {task.id: task for some in self.sets.values() for task in some}


@dataclass(frozen=True, slots=True)
class Job:
    """One rollout to be made."""

    way: Way
    task: Task
    key: Key
    """Its name in the store. The run says how: a repair under another policy is another run."""
    seed: int
    """With and without repair the same; after a failure another."""
    failure: Failure | None = None


@dataclass(slots=True)
class Found:
    """What has come of the jobs so far."""

    samples: dict[Way, dict[Key, Sample]] = field(default_factory=lambda: {way: {} for way in Way})
    recovered: dict[Key, Recovered] = field(default_factory=dict)

    def add(self, trajectory: AnyTrajectory) -> None:
        """Take a finished rollout in."""
        way = Way.of(trajectory.key)
        if way is Way.RECOVERY:
            self.recovered[trajectory.key] = recovered(trajectory)
        else:
            self.samples[way][trajectory.key] = measure(trajectory)

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


async def evaluate(plan: Plan, bench: Bench, journal: Journal, done: Done, *, concurrency: int = 64) -> Found:
    """Run what the journal doesn't hold yet, and say what came of all of it. How it is purified, the plan says."""
    wanted = {job.key: job for job in plan.jobs()}
    found = Found()
    for trajectory in journal.stored():
        if trajectory.key in wanted and journal.counts(trajectory) and trajectory.key not in found:
            found.add(trajectory)
            done(trajectory, True)

    async def one(task: Task, key: Key) -> AnyTrajectory:
        return marked(await _run(wanted[key], plan, bench), task)

    def finished(trajectory: AnyTrajectory) -> None:
        found.add(trajectory)
        done(trajectory, False)

    jobs = [(job.task, job.key) for job in wanted.values()]
    await roll_out(jobs, one, journal, concurrency=concurrency, done=finished)
    return found


async def _run(job: Job, plan: Plan, bench: Bench) -> AnyTrajectory:
    policy = replace(plan.policy, in_evaluation=job.way is Way.ON)
    purifier = Purifier(policy=policy, phase=Phase.EVALUATION, rescore=False)
    own = replace(bench, purifier=purifier, seed=job.seed)
    if job.failure is None:
        return await own.one(job.task, job.key)
    model: Model[Any] = PutIn(bench.model, job.failure, bench.prompt)
    trajectory = await replace(own, model=model).one(job.task, job.key)
    return replace(trajectory, extra={**trajectory.extra, KIND: job.failure.kind})

"""Many rollouts at once, each tried again while something else than the model fails, and kept once it is whole."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cleaner_rl.rollout.finish import finish
from cleaner_rl.rollout.journal import FLUSH_SECONDS, Journal
from cleaner_rl.rollout.loop import rollout
from cleaner_rl.rollout.model import Model
from cleaner_rl.rollout.settings import Purifier, RolloutBudget
from cleaner_rl.rollout.toolbox import Toolbox
from cleaner_rl.tasks import Grader, Prompt, RewardScale, Task
from cleaner_rl.trajectory import AnyTrajectory, Ending, Key, Seeds

PAUSE = 1.0
"""Seconds before a rollout that ended in a fault is tried again; twice as long each time."""


@dataclass(frozen=True, slots=True)
class Bench:
    """All that a rollout needs but its task."""

    model: Model[Any]
    toolbox: Toolbox
    prompt: Prompt
    graders: Mapping[str, Grader]
    budget: RolloutBudget = field(default_factory=RolloutBudget)
    purifier: Purifier | None = None
    scale: RewardScale = RewardScale.SIGNED
    seed: int = 0
    retries: int = 2
    """How often a rollout that ended in a fault is tried again."""

    async def one(self, task: Task, key: Key) -> AnyTrajectory:
        """One rollout, finished. A fault that stays is the rollout's ending, never a failure."""
        pause = PAUSE
        for attempt in range(self.retries + 1):
            trajectory = await self._once(task, key)
            if trajectory.ending is not Ending.FAULT or attempt == self.retries:
                break
            await asyncio.sleep(pause)
            pause *= 2
        return trajectory

    async def _once(self, task: Task, key: Key) -> AnyTrajectory:
        seeds = Seeds(self.seed, task.id, key.rollout)
        made = await rollout(
            task,
            key,
            prompt=self.prompt,
            model=self.model,
            toolbox=self.toolbox,
            seeds=seeds,
            budget=self.budget,
            purifier=self.purifier,
        )
        finished: AnyTrajectory = await finish(
            made,
            task,
            model=self.model,
            toolbox=self.toolbox,
            graders=self.graders,
            seeds=seeds,
            scale=self.scale,
            purifier=self.purifier,
        )
        return finished


Job = tuple[Task, Key]


async def roll_out(
    jobs: Iterable[Job],
    one: Callable[[Task, Key], Awaitable[AnyTrajectory]],
    journal: Journal,
    *,
    concurrency: int = 64,
    done: Callable[[AnyTrajectory], None] = lambda _: None,
) -> None:
    """Do the jobs that the journal doesn't hold, so many at a time, in their order."""
    waiting = iter([job for job in jobs if job[1] not in journal.done])
    async with asyncio.TaskGroup() as group:
        flushing = group.create_task(_flush(journal))
        async with asyncio.TaskGroup() as workers:
            for _ in range(concurrency):
                workers.create_task(_work(waiting, one, journal, done))
        flushing.cancel()


async def _work(
    waiting: Iterator[Job],
    one: Callable[[Task, Key], Awaitable[AnyTrajectory]],
    journal: Journal,
    done: Callable[[AnyTrajectory], None],
) -> None:
    for task, key in waiting:
        trajectory = await one(task, key)
        journal.add(trajectory)
        done(trajectory)


async def _flush(journal: Journal) -> None:
    """Write while nothing finishes, too."""
    while True:
        await asyncio.sleep(FLUSH_SECONDS)
        journal.flush()

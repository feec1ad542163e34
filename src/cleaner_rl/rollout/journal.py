"""Finished rollouts, on disk seconds after they finished: a kill loses none that it names, and none is done twice.

A journal is a store like any other (`trajectory.store`): small files, each whole or absent. Whoever opens it again
knows which rollouts it holds. One process writes it at a time; a second one is refused.

A rollout that is complete is done, graded or not: where its grader had a fault, `resume` has it graded again. Only one
whose engine or tool broke is to be sampled again, and then takes the place of the broken one.

Limits: what finished within the last moments before a kill is done again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Container, Iterator
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Self

from cleaner_rl.trajectory import AnyTrajectory, Key
from cleaner_rl.trajectory.store import ParquetWriter, only_writer, read, rewrite

FLUSH_SECONDS = 5.0
FLUSH_ROLLOUTS = 256


class Journal:
    """A store that grows while rollouts finish; a context manager, which writes what is left."""

    def __init__(self, folder: Path, counts: Callable[[AnyTrajectory], bool] = lambda _: True) -> None:
        """`counts`: whether a rollout that it holds is one of this run's; others stay as they are."""
        self._folder = folder
        self.counts = counts
        self._pending: list[AnyTrajectory] = []
        self._flushed = time.monotonic()
        self._resumable = False
        self.done: set[Key] = set()
        """What is in it and complete, or will be with the next flush."""

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._held = only_writer(self._folder / ".lock")
        self._held.__enter__()
        for each in self.stored():
            if self.counts(each):
                self._resumable = self._resumable or each.broken or each.ungraded
                if not each.broken:
                    self.done.add(each.key)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.flush()  # also when the run was interrupted: what is finished is finished
        self._held.__exit__(kind, error, trace)

    def stored(self) -> Iterator[AnyTrajectory]:
        """Return the trajectories on disk."""
        return read(self._folder) if any(self._folder.rglob("*.parquet")) else iter(())

    async def resume(
        self, wanted: Container[Key], grade: Callable[[AnyTrajectory], Awaitable[AnyTrajectory]], concurrency: int
    ) -> None:
        """Grade the complete rollouts again that have no grade, and remove the broken ones, before others are run."""

        async def one(trajectory: AnyTrajectory) -> AnyTrajectory | None:
            if trajectory.key not in wanted or not self.counts(trajectory):
                return trajectory
            if trajectory.broken:
                return None
            return await grade(trajectory) if trajectory.ungraded else trajectory

        if self._resumable:
            await self.revise(one, concurrency)

    async def revise(
        self, change: Callable[[AnyTrajectory], Awaitable[AnyTrajectory | None]], concurrency: int
    ) -> None:
        """Put what `change` returns for each stored trajectory in its place; None removes it.

        A file in which something changed is replaced as a whole, so a kill leaves it as it was or as it will be.
        """
        limit = asyncio.Semaphore(concurrency)

        async def one(trajectory: AnyTrajectory) -> AnyTrajectory | None:
            async with limit:
                return await change(trajectory)

        for file in sorted(self._folder.rglob("*.parquet")):
            before = list(read(file))
            async with asyncio.TaskGroup() as group:
                changing = [group.create_task(one(trajectory)) for trajectory in before]
            after = [each.result() for each in changing]
            if any(new is not old for new, old in zip(after, before, strict=True)):
                rewrite(file, [each for each in after if each is not None])

    def add(self, trajectory: AnyTrajectory) -> None:
        """Keep a finished rollout."""
        if trajectory.key in self.done:
            raise ValueError(f"{trajectory.key} is in the journal already")
        self.done.add(trajectory.key)
        self._pending.append(trajectory)
        if len(self._pending) >= FLUSH_ROLLOUTS or time.monotonic() - self._flushed >= FLUSH_SECONDS:
            self.flush()

    async def keep(
        self, finished: AsyncGenerator[AnyTrajectory, None], done: Callable[[AnyTrajectory], None] = lambda _: None
    ) -> None:
        """Add trajectories as they finish, and write them even while nothing finishes. `done` is called with each."""
        async with asyncio.TaskGroup() as group, aclosing(finished):
            flushing = group.create_task(self._flush_regularly())
            async for trajectory in finished:
                self.add(trajectory)
                done(trajectory)
            flushing.cancel()

    async def _flush_regularly(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            self.flush()

    def flush(self) -> None:
        """Write what is pending."""
        self._flushed = time.monotonic()
        pending, self._pending = self._pending, []
        if pending:
            with ParquetWriter(self._folder) as writer:
                for trajectory in pending:
                    writer.write(trajectory)

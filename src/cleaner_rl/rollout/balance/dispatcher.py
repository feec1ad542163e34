"""Several replicas of an engine as one engine, under a scheduler.

    Dispatcher   holds each turn until the scheduler starts it, sends it, and sends it elsewhere if its replica breaks
    watch        (a task of its own) asks each replica whether it is up

A replica that a request found broken is out for `REST` seconds; one that doesn't answer, until it does. A turn waits up
to `patience` seconds for a replica; one that was lost with `TRIES` replicas is not sent again: it may be what breaks
them. Cancelled, a turn leaves the queue or its replica at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self, TypeVar

from cleaner_rl.rollout.balance.scheduler import Scheduler
from cleaner_rl.rollout.engine import Completion, Engine, EngineFaultError, EngineRefusedError, Sampling
from cleaner_rl.trajectory import Ids, Scores

INTERVAL = 1.0
"""Seconds between two looks at the replicas."""
REST = 5.0
"""Seconds that a replica is left alone after a request found it broken."""
TRIES = 5

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Replica:
    """One engine, and where it is asked whether it is up."""

    engine: Engine
    watched: Watched


class Watched(Protocol):
    """Asks a replica whether it is up: an `Address` that doesn't wait."""

    async def get(self, path: str) -> bytes:
        """Return the answer. Raises `EngineRefusedError` if there is no such path, `EngineFaultError` if it is down."""
        ...


class Dispatcher:
    """Serves several replicas as one engine; used in an `async with` statement, which starts and ends its watch."""

    def __init__(self, replicas: Mapping[str, Replica], scheduler: Scheduler, *, patience: float = 300.0) -> None:
        """`patience`: seconds that a turn waits for a replica."""
        self._replicas = dict(replicas)
        self._scheduler = scheduler
        self._patience = patience
        self._present: set[str] = set()
        self._resting: dict[str, float] = {}
        self._waiting: dict[str, asyncio.Future[str]] = {}
        self._numbers = itertools.count()
        self._watch: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._look()
        self._watch = asyncio.create_task(self._keep_looking())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._watch is not None
        self._watch.cancel()
        await asyncio.gather(self._watch, return_exceptions=True)

    async def sample(
        self,
        prompt_T: Ids,
        *,
        max_tokens: int,
        seed: int,
        sampling: Sampling,
        stop_ids: tuple[int, ...],
        request: str,
    ) -> Completion:
        """Draw up to `max_tokens` ids, when and where the scheduler says."""

        def ask(engine: Engine) -> Awaitable[Completion]:
            return engine.sample(
                prompt_T, max_tokens=max_tokens, seed=seed, sampling=sampling, stop_ids=stop_ids, request=request
            )

        return await self._turn(request, len(prompt_T), ask, lambda completion: len(completion.ids_T))

    async def score(self, prefix_T: Ids, suffix_T: Ids, *, request: str) -> Scores:
        """Return the log-probs of a suffix, from the trajectory's replica if it is up."""
        home = self._scheduler.home(request)
        if home in self._present and home is not None:
            try:
                return await self._replicas[home].engine.score(prefix_T, suffix_T, request=request)
            except EngineRefusedError:
                raise
            except EngineFaultError:
                self._broke(home)
        # Many can be asked for at once, so each has a name of its own.
        return await self._turn(
            f"{request} score {next(self._numbers)}",
            len(prefix_T) + len(suffix_T),
            lambda engine: engine.score(prefix_T, suffix_T, request=request),
            lambda _: 0,
        )

    async def _turn(
        self, request: str, tokens: int, ask: Callable[[Engine], Awaitable[T]], sampled: Callable[[T], int]
    ) -> T:
        for tries in itertools.count(1):
            name = await self._placed(request, tokens)
            length = tokens
            try:
                answer = await ask(self._replicas[name].engine)
                length += sampled(answer)
                return answer
            except EngineRefusedError:
                raise
            except EngineFaultError:
                self._broke(name)
                if tries == TRIES:
                    raise
            finally:
                self._scheduler.release(request, length, time.monotonic())
                self._dispatch()
        raise AssertionError

    async def _placed(self, request: str, tokens: int) -> str:
        """Wait for the scheduler's word."""
        if request in self._waiting:
            raise ValueError(f"'{request}' has a turn that waits; ask for a trajectory's turns one after the other")
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting[request] = future
        self._scheduler.arrive(request, tokens, time.monotonic())
        self._dispatch()
        try:
            done, _ = await asyncio.wait([future], timeout=self._patience)
            if done:
                return future.result()
            raise TimeoutError
        except BaseException as error:
            if future.done():
                self._scheduler.release(request, tokens, time.monotonic())
            else:
                del self._waiting[request]
                self._scheduler.withdraw(request, time.monotonic())
            self._dispatch()
            if isinstance(error, TimeoutError):
                there = len(self._present)
                raise EngineFaultError(
                    f"no replica could take a turn for {self._patience:g} s; {there} of {len(self._replicas)} answer"
                ) from error
            raise

    def _dispatch(self) -> None:
        for request, name in self._scheduler.dispatch(time.monotonic()):
            self._waiting.pop(request).set_result(name)

    def _broke(self, name: str) -> None:
        self._resting[name] = time.monotonic() + REST
        self._lost(name)

    def _lost(self, name: str) -> None:
        if name in self._present:
            self._present.remove(name)
            self._scheduler.remove(name)

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL)
            await self._look()

    async def _look(self) -> None:
        """At all replicas, at once: one that hangs must not hide the others."""
        await asyncio.gather(*(self._look_at(name, replica) for name, replica in self._replicas.items()))
        self._dispatch()

    async def _look_at(self, name: str, replica: Replica) -> None:
        try:
            with contextlib.suppress(EngineRefusedError):  # which is an answer too
                await asyncio.wait_for(replica.watched.get("/health"), 10 * INTERVAL)
        except (EngineFaultError, TimeoutError):
            self._lost(name)
            return
        if name not in self._present and self._resting.get(name, 0.0) <= time.monotonic():
            self._present.add(name)
            self._scheduler.add(name)

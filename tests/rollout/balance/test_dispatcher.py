"""The dispatcher over engines that are stand-ins: they answer, hang, break and come back as a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np
import pytest

from benchmarks.balance_rivals import RoundRobin
from cleaner_rl.rollout.balance import Dispatcher, EvenConfig, EvenScheduler, Replica, Scheduler, dispatcher
from cleaner_rl.rollout.engine import Completion, Engine, EngineFaultError, EngineRefusedError, Finish, Sampling
from cleaner_rl.trajectory import Ids, Scores


class StandIn:
    """An engine that draws as many tokens as it is asked for, when the test lets it."""

    def __init__(self) -> None:
        self.broken = False
        self.without_health = False
        self.gate = asyncio.Event()
        self.gate.set()
        self.served: list[str] = []
        self.inside = 0

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
        await self._serve(request)
        return Completion(np.full(max_tokens, seed, np.int32), None, Finish.LENGTH)

    async def score(self, prefix_T: Ids, suffix_T: Ids, *, request: str) -> Scores:
        await self._serve(f"score {request}")
        return Scores(np.zeros(len(suffix_T), np.float32))

    async def get(self, path: str) -> bytes:
        if self.broken:
            raise EngineFaultError("away")
        if self.without_health:
            raise EngineRefusedError(f"there is no {path}")
        return b""

    async def _serve(self, request: str) -> None:
        self.inside += 1
        try:
            await self.gate.wait()
            if self.broken:
                raise EngineFaultError("broke")
            self.served.append(request)
        finally:
            self.inside -= 1


Story = Callable[[Dispatcher, list[StandIn]], Awaitable[None]]


def play(story: Story, *, engines: int = 2, scheduler: Scheduler | None = None, patience: float = 30.0) -> None:
    async def main() -> None:
        before = asyncio.all_tasks()
        made = [StandIn() for _ in range(engines)]
        replicas = {f"r{place}": Replica(engine, engine) for place, engine in enumerate(made)}
        chosen = scheduler or EvenScheduler(EvenConfig(longest=1_000))
        async with Dispatcher(replicas, chosen, patience=patience) as engine:
            await story(engine, made)
        assert asyncio.all_tasks() == before, "nothing of it lives on"
        assert all(engine.inside == 0 for engine in made)

    asyncio.run(asyncio.wait_for(main(), 60))


async def draw(engine: Engine, request: str, prompt: int = 10, tokens: int = 5) -> Completion:
    ids = np.zeros(prompt, np.int32)
    return await engine.sample(ids, max_tokens=tokens, seed=7, sampling=Sampling(), stop_ids=(), request=request)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - looks at what has no event
        await asyncio.sleep(0.005)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "INTERVAL", 0.02)
    monkeypatch.setattr(dispatcher, "REST", 0.02)


def test_a_trajectory_stays_and_the_answer_is_the_engines() -> None:
    async def story(front: Dispatcher, engines: list[StandIn]) -> None:
        for turn in range(4):
            completion = await draw(front, "a", 10 + 5 * turn)
            assert completion.ids_T.tolist() == [7] * 5
        assert sorted(len(engine.served) for engine in engines) == [0, 4]

    play(story)


def test_scores_go_where_the_trajectory_is_many_at_once() -> None:
    async def story(front: Dispatcher, engines: list[StandIn]) -> None:
        await draw(front, "a")
        ids = np.zeros(4, np.int32)
        await asyncio.gather(*(front.score(ids, ids, request="a") for _ in range(8)))
        await front.score(ids, ids, request="unknown")
        home = max(engines, key=lambda engine: len(engine.served))
        assert home.served[:9] == ["a", *["score a"] * 8]

    play(story)


def test_a_replica_that_breaks_loses_its_turns_to_the_others_and_comes_back() -> None:
    async def story(front: Dispatcher, engines: list[StandIn]) -> None:
        for engine in engines:
            engine.gate.clear()
        turns = [asyncio.create_task(draw(front, str(number))) for number in range(8)]
        await until(lambda: sum(engine.inside for engine in engines) == 8)
        engines[0].broken = True
        for engine in engines:
            engine.gate.set()
        await asyncio.gather(*turns)
        assert sorted(engines[1].served) == sorted(map(str, range(8))), "each once"
        engines[0].broken = False

        async def again() -> None:
            while not engines[0].served:
                await asyncio.gather(*(draw(front, f"later {number}") for number in range(4)))

        await again()

    play(story)


def test_a_turn_that_breaks_every_replica_is_given_up() -> None:
    async def story(front: Dispatcher, engines: list[StandIn]) -> None:
        async def poison(request: str) -> None:
            raise EngineFaultError(f"{request} kills")

        for engine in engines:
            engine._serve = poison  # type: ignore[method-assign]
        with pytest.raises(EngineFaultError, match="poison kills"):
            await draw(front, "poison")

    play(story)


def test_what_one_refuses_is_not_sent_to_another() -> None:
    async def story(front: Dispatcher, engines: list[StandIn]) -> None:
        async def refuse(request: str) -> None:
            raise EngineRefusedError(f"{request} is too long")

        engines[0]._serve = engines[1]._serve = refuse  # type: ignore[method-assign]
        with pytest.raises(EngineRefusedError):
            await draw(front, "a")
        assert len(front._present) == 2

    play(story)


def test_without_replicas_a_turn_waits_for_one_and_then_says_so() -> None:
    async def story(front: Dispatcher, engines: list[StandIn]) -> None:
        engines[0].broken = True
        with pytest.raises(EngineFaultError, match=r"0\.2 s.*0 of 1"):
            await draw(front, "a")
        engines[0].broken = False
        await draw(front, "a")

    play(story, engines=1, patience=0.2)


def test_one_that_waits_is_served_when_a_replica_comes_back() -> None:
    async def story(front: Dispatcher, engines: list[StandIn]) -> None:
        engines[0].broken = True
        turn = asyncio.create_task(draw(front, "a"))
        await until(lambda: not front._present)
        engines[0].broken = False
        await turn

    play(story, engines=1)


def test_cancelled_while_it_runs_or_waits_a_turn_leaves_nothing() -> None:
    async def story(front: Dispatcher, engines: list[StandIn]) -> None:
        async def cancel(turns: list[asyncio.Task[Completion]]) -> None:
            for turn in turns:
                turn.cancel()
            ended = await asyncio.gather(*turns, return_exceptions=True)
            assert all(isinstance(each, asyncio.CancelledError) for each in ended)

        engines[0].gate.clear()
        turns = [asyncio.create_task(draw(front, str(number))) for number in range(6)]
        await until(lambda: engines[0].inside == 6)
        await cancel(turns)
        engines[0].broken = True
        await until(lambda: not front._present)
        turns = [asyncio.create_task(draw(front, str(number))) for number in range(6)]
        await until(lambda: len(front._waiting) == 6)
        await cancel(turns)
        assert not front._waiting
        engines[0].broken = False
        engines[0].gate.set()
        await draw(front, "after")

    play(story, engines=1)


def test_a_replica_that_refuses_to_say_how_it_is_is_up() -> None:
    async def story(front: Dispatcher, engines: list[StandIn]) -> None:
        engines[0].without_health = True
        await asyncio.sleep(0.1)
        assert front._present == {"r0"}
        await draw(front, "a")

    play(story, engines=1)


def test_any_scheduler_will_do() -> None:
    async def story(front: Dispatcher, engines: list[StandIn]) -> None:
        for number in range(4):
            await draw(front, str(number))
        assert [len(engine.served) for engine in engines] == [2, 2]

    play(story, scheduler=RoundRobin())

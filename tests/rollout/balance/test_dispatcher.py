"""The dispatcher over engines that are stand-ins: they answer, hang, break and come back as a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np
import pytest

from benchmarks.balance_rivals import RoundRobin
from cleaner_rl.rollout.balance import Dispatcher, EvenConfig, EvenScheduler, Replica, Scheduler, dispatcher
from cleaner_rl.rollout.balance.metrics import read_vllm
from cleaner_rl.rollout.engine import Completion, Engine, EngineFaultError, EngineRefusedError, Finish, Sampling
from cleaner_rl.trajectory import Ids, Scores

METRICS = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 3.0
vllm:num_requests_waiting{engine="0",model_name="tiny"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="tiny",reason="capacity"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="tiny"} 0.25
vllm:cache_config_info{block_size="32",cache_dtype="auto",engine="0",num_gpu_blocks="100",num_cpu_blocks="None"} 1.0
"""


class StandIn:
    """An engine that draws as many tokens as it is asked for, when the test lets it."""

    def __init__(self) -> None:
        self.broken = False
        self.metrics = ""
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
        if not self.metrics:
            raise EngineRefusedError(f"there is no {path}")
        return self.metrics.encode()

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


async def comes_with_little_room(front: Dispatcher, engine: StandIn) -> None:
    engine.broken = True
    await until(lambda: not front._present)
    engine.metrics = METRICS.replace('num_gpu_blocks="100"', 'num_gpu_blocks="20"')
    engine.broken = False
    await until(lambda: bool(front._present))


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


def test_a_turn_waits_in_line_for_as_long_as_others_are_at_work() -> None:
    async def story(front: Dispatcher, engines: list[StandIn]) -> None:
        await comes_with_little_room(front, engines[0])
        engines[0].gate.clear()
        turns = [asyncio.create_task(draw(front, str(number), prompt=300)) for number in range(6)]
        await until(lambda: engines[0].inside > 0 and len(front._waiting) > 0)
        first = asyncio.get_running_loop().time()
        await until(lambda: asyncio.get_running_loop().time() > first + 0.3)  # three times its patience
        engines[0].gate.set()
        assert len(await asyncio.gather(*turns)) == 6

    play(story, engines=1, patience=0.1)


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
        await comes_with_little_room(front, engines[0])
        engines[0].gate.clear()
        turns = [asyncio.create_task(draw(front, str(number), prompt=300)) for number in range(6)]
        await until(lambda: engines[0].inside > 0 and len(front._waiting) > 0)
        for turn in turns:
            turn.cancel()
        assert all(
            isinstance(each, asyncio.CancelledError) for each in await asyncio.gather(*turns, return_exceptions=True)
        )
        assert not front._waiting
        engines[0].gate.set()
        await draw(front, "after")

    play(story, engines=1)


def test_any_scheduler_will_do() -> None:
    async def story(front: Dispatcher, engines: list[StandIn]) -> None:
        for number in range(4):
            await draw(front, str(number))
        assert [len(engine.served) for engine in engines] == [2, 2]

    play(story, scheduler=RoundRobin())


def test_vllms_metrics_are_read() -> None:
    gauge = read_vllm(METRICS)
    assert gauge is not None
    assert (gauge.room, gauge.load.used) == (3_200, 800)
    assert read_vllm("") is None
    assert read_vllm(METRICS.replace('"100"', '"None"')) is None

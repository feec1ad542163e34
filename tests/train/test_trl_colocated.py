"""How a vLLM in the trainer's process is driven. A stand-in for `vllm.LLM` notes what is asked of it, and where."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cleaner_rl.rollout import EngineFaultError, EngineRefusedError, Finish, Sampling
from cleaner_rl.train.trl.colocated import ColocatedEngine
from cleaner_rl.train.trl.serving import Colocated, OwnModel, Server, source_of

STOP, WINDOW = 9, 64


class StandIn:
    """Plays `vllm.LLM`: answers each request with its prompt's last id, plus 1 each, until the stop token."""

    def __init__(self) -> None:
        self.llm_engine = self
        self.model_config = SimpleNamespace(max_model_len=WINDOW)
        self.running: dict[str, tuple[list[int], Any]] = {}
        self.aborted: list[str] = []
        self.calls: list[str] = []
        self.threads: set[int] = set()
        self.before_step: Callable[[], None] = lambda: None

    def add_request(self, name: str, prompt: dict[str, list[int]], settings: Any) -> None:
        if len(prompt["prompt_token_ids"]) >= WINDOW:
            raise ValueError("the prompt is longer than max_model_len")
        self.running[name] = (prompt["prompt_token_ids"], settings)

    def abort_request(self, names: list[str]) -> None:
        self.aborted += names
        for name in names:
            self.running.pop(name, None)

    def step(self) -> list[Any]:
        self.threads.add(threading.get_ident())
        self.before_step()
        return [self.answer(name, *self.running.pop(name)) for name in list(self.running)]

    def answer(self, name: str, prompt: list[int], settings: Any) -> Any:
        ids = [number for number in range(prompt[-1] + 1, prompt[-1] + 1 + settings.max_tokens) if number <= STOP]
        rows = [{token: SimpleNamespace(logprob=-token / 8)} for token in ids]
        why = "stop" if ids and ids[-1] == STOP else "length"
        scored = [None, *({token: SimpleNamespace(logprob=-token / 8)} for token in prompt[1:])]
        made = SimpleNamespace(token_ids=ids, logprobs=rows, finish_reason=why)
        return SimpleNamespace(request_id=name, finished=True, outputs=[made], prompt_logprobs=scored)

    def wake_up(self, tags: list[str]) -> None:
        self.calls.append(f"wake {tags}")

    def sleep(self, level: int) -> None:
        self.calls.append(f"sleep {level}")


@pytest.fixture(autouse=True)
def _vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough of the package for its settings to be named."""
    params = SimpleNamespace(RequestOutputKind=SimpleNamespace(FINAL_ONLY="final"))
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(SamplingParams=SimpleNamespace))
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", params)


@pytest.fixture
def start() -> Iterator[Callable[[Any], Future[Any]]]:
    """Starts work on a loop in another thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield lambda work: asyncio.run_coroutine_threadsafe(work, loop)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def sampled(engine: ColocatedEngine, prompt: list[int], most: int = 8) -> Any:
    return engine.sample(
        np.array(prompt, np.int32), max_tokens=most, seed=5, sampling=Sampling(), stop_ids=(STOP,), request="a"
    )


def test_requests_are_answered_by_the_thread_that_drives(start: Any) -> None:
    llm = StandIn()
    engine = ColocatedEngine(llm, version=3)

    async def work() -> Any:
        two = await asyncio.gather(sampled(engine, [1, 6]), sampled(engine, [2], most=2))
        return *two, await engine.score(np.array([1, 6]), np.array([7, 8]), request="a")

    first, second, scores = engine.drive(start(work()))

    assert llm.threads == {threading.get_ident()}
    assert (first.ids_T.tolist(), first.finish, first.version) == ([7, 8, 9], Finish.STOP, 3)
    assert first.logprobs_T.tolist() == [-7 / 8, -1, -9 / 8]
    assert (second.ids_T.tolist(), second.finish) == ([3, 4], Finish.LENGTH)
    assert (scores.logprobs.tolist(), scores.version) == ([-7 / 8, -1], 3)


def test_a_request_is_sampled_as_it_was_asked_for(start: Any) -> None:
    llm = StandIn()
    seen: list[Any] = []
    engine = ColocatedEngine(llm)
    llm.before_step = lambda: seen.extend(settings for _, settings in llm.running.values())
    engine.drive(start(sampled(engine, [1])))
    (settings,) = seen
    assert (settings.seed, settings.stop_token_ids, settings.ignore_eos, settings.max_tokens) == (5, [STOP], True, 8)
    assert (settings.temperature, settings.top_p, settings.top_k, settings.logprobs) == (1.0, 1.0, 0, 0)


def test_a_vllm_that_breaks_is_a_fault_of_every_request(start: Any) -> None:
    llm = StandIn()
    engine = ColocatedEngine(llm)

    def broken() -> None:
        raise RuntimeError("out of memory")

    llm.before_step = broken

    async def work() -> Any:
        return await asyncio.gather(sampled(engine, [1]), sampled(engine, [2]), return_exceptions=True)

    faults = engine.drive(start(work()))
    assert [type(each) for each in faults] == [EngineFaultError] * 2
    assert "out of memory" in str(faults[0])


def test_a_prompt_that_is_too_long_is_refused_alone(start: Any) -> None:
    engine = ColocatedEngine(StandIn())

    async def work() -> Any:
        asked = sampled(engine, [1] * WINDOW), sampled(engine, [7])
        return await asyncio.gather(*asked, return_exceptions=True)

    refused, answered = engine.drive(start(work()))
    assert isinstance(refused, EngineRefusedError)
    assert answered.ids_T.tolist() == [8, 9]


def test_a_request_that_is_cancelled_ends_in_vllm_too(start: Any) -> None:
    llm = StandIn()
    engine = ColocatedEngine(llm)
    stepped, asked = threading.Event(), threading.Event()

    async def work() -> None:
        task = asyncio.ensure_future(sampled(engine, [1]))
        await asyncio.to_thread(stepped.wait, 20)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        asked.set()
        await sampled(engine, [8])

    def held() -> None:
        stepped.set()
        assert asked.wait(20)
        if len(llm.running) == 1 and not llm.aborted:  # the first one goes on until it is cancelled
            kept.update(llm.running)
            llm.running.clear()

    kept: dict[str, Any] = {}
    llm.before_step = held
    engine.drive(start(work()))
    assert llm.aborted == list(kept)


def generation(**changes: Any) -> Any:
    """What TRL keeps of its vLLM."""
    values = {"mode": "colocate", "llm": StandIn(), "enable_sleep_mode": False, "_llm_weights_sleeping": False}
    values |= {"server_base_url": None, "server_host": "0.0.0.0", "server_port": 8000}
    made = SimpleNamespace(**values | changes)
    made.sync_weights = lambda: made.llm.calls.append("weights")
    return made


@pytest.mark.parametrize("asleep", [False, True])
def test_with_sleep_mode_vllm_is_awake_for_the_rollouts_alone(start: Any, asleep: bool) -> None:
    held = generation(enable_sleep_mode=True, _llm_weights_sleeping=asleep)
    source = Colocated(held, 1)

    async def work() -> Any:
        async with source.opened() as (engine, window):
            assert window == WINDOW - 1
            return await sampled(engine, [7])  # type: ignore[arg-type]

    assert source.drive(start(work())).ids_T.tolist() == [8, 9]
    assert held.llm.calls == [*["weights"] * asleep, "wake ['kv_cache']", "sleep 2"]
    assert held._llm_weights_sleeping


def test_rollouts_come_from_what_the_trainer_has() -> None:
    def trainer(**changes: Any) -> Any:
        return SimpleNamespace(use_vllm=True, vllm_generation=generation(**changes))

    assert isinstance(source_of(SimpleNamespace(use_vllm=False), object(), 1), OwnModel)
    assert isinstance(source_of(trainer(), object(), 1), Colocated)
    for changes, url in (({}, "http://0.0.0.0:8000"), ({"server_base_url": "http://host:9"}, "http://host:9")):
        server = source_of(trainer(mode="server", **changes), object(), 1)
        assert isinstance(server, Server)
        assert server._url == url

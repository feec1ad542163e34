"""Our policy over verl's client; a stand-in plays the client, the router is ours."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cleaner_rl.rollout import Sampling
from cleaner_rl.train.verl.router import EvenRouter

pytestmark = pytest.mark.timeout(120)  # verl's import takes long
PROMPT = np.arange(4, dtype=np.int32)


class Client:
    """Asks the router for a server, answers, and gives the server back: the order of verl's own."""

    def __init__(self, router: EvenRouter) -> None:
        self._router = router
        self.asked, self.routed, self.released = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Any:
        self.asked.set()
        await self.routed.wait()  # verl's router is in another process
        server, _ = self._router.acquire_server(request_id, prompt_ids)
        try:
            return SimpleNamespace(token_ids=[1], log_probs=[0.0], stop_reason="completed", extra_fields={})
        finally:
            self._router.release_server(server, request_id)
            self.released.set()


def test_a_request_that_is_cancelled_while_it_asks_for_a_server_gives_it_back() -> None:
    from cleaner_rl.train.verl.engine import VerlEngine

    async def ask(engine: VerlEngine, request: str) -> None:
        prompt = np.arange(60, dtype=np.int32)
        await engine.sample(prompt, max_tokens=8, seed=1, sampling=Sampling(), stop_ids=(1,), request=request)

    async def check() -> None:
        router = EvenRouter({"a": object()}, {"longest": 100})
        client = Client(router)
        cancelled = asyncio.create_task(ask(VerlEngine(client, "vllm"), "cancelled"))
        await client.asked.wait()
        cancelled.cancel()
        await asyncio.sleep(0)
        client.routed.set()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        await asyncio.wait_for(client.released.wait(), 10)
        assert router.get_total_inflight() == 0

    asyncio.run(check())


class Server:
    """A replica that a weight update aborts after three ids, every other time; the others run to their end."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.generate = self

    async def remote(self, *, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any) -> Any:
        from verl.workers.rollout.replica import TokenOutput

        self.asked.append({"prompt": prompt_ids, **sampling_params})
        drawn = np.random.default_rng(sampling_params["seed"]).integers(100, 10_000, sampling_params["max_tokens"])
        broken = len(self.asked) % 2 == 1
        ids = drawn.tolist()[: 3 if broken else None]
        reason = "aborted" if broken else "completed"
        steps = {"global_steps": 6 + len(self.asked)}
        return TokenOutput(token_ids=ids, log_probs=[-1.0] * len(ids), stop_reason=reason, extra_fields=steps)


def test_a_turn_that_a_weight_update_broke_off_goes_on_with_other_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    from omegaconf import OmegaConf
    from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient

    from cleaner_rl.train.verl import engine as module

    monkeypatch.setattr(module, "AGAIN_SECONDS", 0.0)
    server = Server()
    client = FullyAsyncLLMServerClient(OmegaConf.create({"actor_rollout_ref": {"rollout": {"name": "vllm"}}}))

    async def acquire(*_: Any, **__: Any) -> tuple[str, Server]:
        return "a", server

    monkeypatch.setattr(client, "_acquire_server", acquire)
    monkeypatch.setattr(client, "_release_server", lambda *_, **__: None)
    engine = module.VerlEngine(client, "vllm")
    drawn = asyncio.run(engine.sample(PROMPT, max_tokens=6, seed=5, sampling=Sampling(), stop_ids=(1,), request="r"))

    ids = drawn.ids_T.tolist()
    assert len(ids) == 6
    assert ids[:3] != ids[3:]
    assert [each["prompt"] for each in server.asked] == [[0, 1, 2, 3], [0, 1, 2, 3, *ids[:3]]]
    assert [each["max_tokens"] for each in server.asked] == [6, 3]
    assert drawn.logprobs_T is not None
    assert drawn.logprobs_T.tolist() == [-1.0] * 6
    assert (engine.oldest, drawn.version) == (7, 8)


@pytest.mark.parametrize(
    ("ids", "kept", "finish"),
    [
        ([7, 8, 1], [7, 8, 1], "stop"),
        ([7, 8, 2], [7, 8], "stop"),  # 2 stands for another end, of which only the engine knows
        ([2], [2], "stop"),
        ([7, 8, 9, 10], [7, 8, 9, 10], "length"),
    ],
)
def test_a_turn_has_ended_wherever_the_engine_ends_it(ids: list[int], kept: list[int], finish: str) -> None:
    from cleaner_rl.train.verl.engine import VerlEngine

    class Other:
        async def generate(self, *_: Any, **__: Any) -> Any:
            return SimpleNamespace(token_ids=ids, log_probs=[0.0] * len(ids), stop_reason="completed", extra_fields={})

    engine = VerlEngine(Other(), "vllm")
    drawn = asyncio.run(engine.sample(PROMPT, max_tokens=4, seed=5, sampling=Sampling(), stop_ids=(1,), request="r"))
    assert (drawn.ids_T.tolist(), str(drawn.finish)) == (kept, finish)
    assert drawn.logprobs_T is not None
    assert len(drawn.logprobs_T) == len(kept)


class Scorer:
    """A replica that scores as one of vLLM's model runners does, through verl's own reading of its answers: of cached
    tokens the first runner gives rows that mean nothing, the second none, and it may lose some when it has to make
    room. Its first answer may be an abort."""

    def __init__(self, runner: int, cached: int, lost: int, *, aborts: bool) -> None:
        self.runner, self.cached, self.lost, self.aborts = runner, cached, lost, aborts
        self.asked = 0

    async def generate(self, _: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Any:
        from verl.workers.rollout.vllm_rollout.utils import extract_prompt_logprobs

        self.asked += 1
        hit = 0 if sampling_params["skip_reading_prefix_cache"] else self.cached
        rows = [{each: SimpleNamespace(logprob=-each / 8)} for each in prompt_ids[1:]]
        junk = [{0: SimpleNamespace(logprob=9.0)}] * hit if self.runner == 1 else []
        aborted = self.aborts and self.asked == 1
        extra: dict[str, Any] = {"global_steps": 3, "num_cached_tokens": hit}
        lost = 0 if sampling_params["skip_reading_prefix_cache"] else self.lost
        shown = SimpleNamespace(prompt_logprobs=[None] if aborted else [None, *junk, *rows[hit + lost :]])
        extract_prompt_logprobs(shown, 0, extra)
        return SimpleNamespace(token_ids=[1], stop_reason="aborted" if aborted else "completed", extra_fields=extra)


@pytest.mark.parametrize(("runner", "lost"), [(1, 0), (2, 0), (2, 4)])
@pytest.mark.parametrize("cached", [0, 2, 3, 4])
@pytest.mark.parametrize("aborts", [False, True])
def test_a_suffix_has_its_scores_with_either_of_vllms_model_runners(
    runner: int, lost: int, cached: int, aborts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cleaner_rl.train.verl import engine as module

    monkeypatch.setattr(module, "AGAIN_SECONDS", 0.0)
    client = Scorer(runner, cached, lost, aborts=aborts)
    suffix = np.array([8, 16], np.int32)
    scores = asyncio.run(module.VerlEngine(client, "vllm").score(PROMPT, suffix, request="r"))
    assert (scores.logprobs.tolist(), scores.version) == ([-1.0, -2.0], 3)
    assert client.asked == 1 + aborts + (cached >= len(PROMPT) or lost > 0)

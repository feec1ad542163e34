"""Engines over HTTP, against stand-ins that are written to their documentation; a real vLLM is in `tests/engine`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import web

from benchmarks.serving import free_port
from cleaner_rl.purify import SampleRequest
from cleaner_rl.rollout import (
    ChatError,
    Connection,
    EngineFaultError,
    EngineKind,
    Finish,
    Purifier,
    Sampling,
    StatelessToolEnv,
    grade_and_purify,
    rollout,
)
from cleaner_rl.rollout.engines import Address, SglangEngine, VllmEngine, connect, http
from cleaner_rl.rollout.engines.endpoint import ChatModel
from cleaner_rl.tasks import ChoiceGrader
from cleaner_rl.trajectory import StopReason, TextSpan, Trajectory, residual_tally
from tests.nodes import asynchronous
from tests.rollout.chats import TOOLS, tokenizer
from tests.rollout.scripted import KEY, SEEDS, STATELESS, TASK, logprobs_of
from tests.rollout.test_loop import FakeSandbox

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def standing_in(route: str, handler: Handler, method: str = "POST") -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route(method, route, handler)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def sglang_stand_in(request: web.Request) -> web.Response:
    """SGLang's `/generate`: log-probs from `logprob_start_len` on, the first of them null."""
    body = await request.json()
    ids = np.array(body["input_ids"], np.int32)
    settings = body["sampling_params"]
    assert body["return_logprob"] is True
    meta: dict[str, Any] = {"finish_reason": {"type": "length"}, "weight_version": "12"}
    start = body["logprob_start_len"]
    if start >= 0:
        rows = logprobs_of(ids[:start], ids[start:]).tolist()
        meta["input_token_logprobs"] = [
            [None if not number else row, int(token), None]
            for number, (row, token) in enumerate(zip(rows, ids[start:], strict=True))
        ]
    drawn = np.arange(settings["max_new_tokens"], dtype=np.int32) + settings.get("sampling_seed", 0) % 7
    stops = np.flatnonzero(np.isin(drawn, settings.get("stop_token_ids", [])))
    if len(stops):
        drawn = drawn[: stops[0] + 1]
        meta["finish_reason"] = {"type": "stop", "matched": int(drawn[-1])}
    rows = logprobs_of(ids, drawn).tolist()
    meta["output_token_logprobs"] = [[row, int(token), None] for row, token in zip(rows, drawn, strict=True)]
    return web.json_response({"text": "", "meta_info": meta})


@asynchronous
async def test_sglang_samples_and_scores_by_its_documented_contract() -> None:
    ids = np.arange(50, 90, dtype=np.int32)
    async with standing_in("/generate", sglang_stand_in) as url, Address(url) as address:
        engine = SglangEngine(address)
        options: dict[str, Any] = {"seed": 3, "sampling": Sampling(), "request": "x"}
        cut = await engine.sample(ids, max_tokens=4, stop_ids=(), **options)
        assert (cut.ids_T.tolist(), cut.finish, cut.version) == ([3, 4, 5, 6], Finish.LENGTH, 12)
        assert cut.logprobs_T is not None
        assert np.array_equal(cut.logprobs_T, logprobs_of(ids, cut.ids_T))
        ended = await engine.sample(ids, max_tokens=9, stop_ids=(5,), **options)
        assert (ended.ids_T.tolist(), ended.finish) == ([3, 4, 5], Finish.STOP)
        scores = await engine.score(ids[:7], ids[7:], request="x")
        assert np.array_equal(scores.logprobs, logprobs_of(ids[:7], ids[7:]))
        assert scores.version == 12


@asynchronous
async def test_sglang_that_aborts_or_answers_otherwise_is_a_fault() -> None:
    answers: list[Any] = [
        {"text": "", "meta_info": {"finish_reason": {"type": "abort", "message": "out of memory"}}},
        {"choices": []},
        {"meta_info": {"input_token_logprobs": [[-0.1, 999, None]]}},
    ]

    async def handler(request: web.Request) -> web.Response:
        return web.json_response(answers.pop(0))

    ids = np.arange(5, 9, dtype=np.int32)
    async with standing_in("/generate", handler) as url, Address(url) as address:
        engine = SglangEngine(address)
        for reason in ("out of memory", "another form"):
            with pytest.raises(EngineFaultError, match=reason):
                await engine.sample(ids, max_tokens=1, stop_ids=(), seed=1, sampling=Sampling(), request="x")
        with pytest.raises(EngineFaultError, match="log-probs"):
            await engine.score(ids[:3], ids[3:], request="x")


@asynchronous
async def test_a_busy_or_broken_engine_is_asked_again_and_a_refusal_is_not() -> None:
    statuses: list[int] = []
    asked = 0

    async def handler(request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.Response(status=statuses.pop(0) if statuses else 200, text="because")

    async with standing_in("/x", handler) as url, Address(url, patience=20) as address:
        statuses = [429, 503, 500]
        await address.post("/x", {})
        assert asked == 4
        statuses = [400]
        with pytest.raises(EngineFaultError, match="400: because"):
            await address.post("/x", {})
        assert asked == 5
    async with Address("http://127.0.0.1:9", patience=0.5) as nowhere:
        with pytest.raises(EngineFaultError, match=r"127\.0\.0\.1:9.*0\.5 s"):
            await nowhere.post("/x", {})


@asynchronous
async def test_who_waits_for_an_engine_is_told_so_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "SILENCE", 0.2)
    async with Address("http://127.0.0.1:9", patience=2) as nowhere:
        with pytest.raises(EngineFaultError):
            await nowhere.post("/x", {})
    (said,) = [record.getMessage() for record in caplog.records if record.name == http.__name__]
    assert "http://127.0.0.1:9" in said
    assert "2 s" in said


@asynchronous
async def test_a_chat_api_has_one_address() -> None:
    several = Connection(("http://127.0.0.1:9/v1", "http://127.0.0.1:10/v1"), "some-model", EngineKind.CHAT)
    with pytest.raises(ChatError, match="one address"):
        async with connect(several, STATELESS):
            pass


@pytest.mark.parametrize("status", [400, 500])
@asynchronous
async def test_vllm_that_breaks_on_the_rows_of_its_cache_is_asked_for_all_of_them(status: int) -> None:
    """A stand-in for a server whose uninitialised rows hold what JSON can't spell."""
    skipped = []

    async def handler(request: web.Request) -> web.Response:
        body = await request.json()
        ids = np.array(body["token_ids"], np.int32)
        skipped.append(body["sampling_params"]["skip_reading_prefix_cache"])
        if not skipped[-1]:
            return web.Response(status=status, text="Out of range float values are not JSON compliant")
        rows = logprobs_of(ids[:1], ids[1:]).tolist()
        shown = [None, *({str(token): {"logprob": row}} for row, token in zip(rows, ids[1:].tolist(), strict=True))]
        choice = {"token_ids": [1], "finish_reason": "length"}
        return web.json_response({"choices": [choice], "usage": {}, "prompt_logprobs": shown})

    ids = np.arange(5, 25, dtype=np.int32)
    async with standing_in("/inference/v1/generate", handler) as url, Address(url) as address:
        engine = VllmEngine(address)
        scores = await engine.score(ids[:6], ids[6:], request="x")
        assert np.array_equal(scores.logprobs, logprobs_of(ids[:1], ids[1:])[5:])
        assert skipped == [False, True]


@pytest.mark.parametrize(("runner", "lost"), [(1, 0), (2, 0), (2, 9)])
@pytest.mark.parametrize("cached", [0, 4, 6, 7])
@pytest.mark.parametrize("suffix", [1, 2, 14])
@asynchronous
async def test_vllm_scores_a_suffix_with_either_of_its_model_runners(
    runner: int, lost: int, cached: int, suffix: int
) -> None:
    """A stand-in for both: of cached tokens the first gives rows that mean nothing, the second none. It may also have
    lost rows when it had to make room, and says nothing of it."""

    async def handler(request: web.Request) -> web.Response:
        body = await request.json()
        ids = np.array(body["token_ids"], np.int32)
        settings = body["sampling_params"]
        if listed := settings.get("logprob_token_ids"):
            row = float(logprobs_of(ids, np.array(listed[:1], np.int32))[0])
            shown = [{"token": f"token_id:{listed[0]}", "logprob": row}]
            logprobs = {"content": [{"logprob": -1.0, "top_logprobs": shown}]}
            choice = {"token_ids": [1], "finish_reason": "length", "logprobs": logprobs}
            return web.json_response({"choices": [choice], "usage": {}})
        hit = 0 if settings["skip_reading_prefix_cache"] else min(cached, len(ids) - 1)
        rows = logprobs_of(ids[:1], ids[1:])
        rows[:hit] = 9.0
        known = [{str(token): {"logprob": float(row)}} for row, token in zip(rows, ids[1:].tolist(), strict=True)]
        choice = {"token_ids": [1], "finish_reason": "length"}
        usage = {"prompt_tokens_details": {"cached_tokens": hit}}
        gone = 0 if settings["skip_reading_prefix_cache"] else lost
        given = [None, *(known if runner == 1 else known[hit + gone :])]
        return web.json_response({"choices": [choice], "usage": usage, "prompt_logprobs": given})

    ids = np.arange(5, 11 + suffix, dtype=np.int32)
    async with standing_in("/inference/v1/generate", handler) as url, Address(url) as address:
        scores = await VllmEngine(address).score(ids[:6], ids[6:], request="x")
        assert np.allclose(scores.logprobs, logprobs_of(ids[:1], ids[1:])[5:])


class ChatApi:
    """A stand-in for a chat service: gives these messages, and keeps what it was sent."""

    def __init__(self, *said: dict[str, Any]) -> None:
        self.said = list(said)
        self.bodies: list[dict[str, Any]] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.bodies.append(await request.json())
        message = self.said.pop(0)
        reason = message.pop("finish_reason", "stop")
        return web.json_response({"choices": [{"message": message, "finish_reason": reason}]})


def called(arguments: str) -> dict[str, Any]:
    function = {"name": "python", "arguments": arguments}
    return {"content": "Let me see.", "tool_calls": [{"id": "any", "type": "function", "function": function}]}


@asynchronous
async def test_a_chat_api_gives_text_trajectories_that_are_repaired_and_graded() -> None:
    in_text = json.dumps({"name": "python", "arguments": {"code": "x"}})
    service = ChatApi(
        called(json.dumps({"code": "error"})),
        called('{"code": "broken'),
        called(json.dumps({"code": "errors"})),
        {"content": f"<tool_call>\n{in_text}\n</tool_call>"},
        {"content": "The answer: C"},
    )
    async with standing_in("/v1/chat/completions", service.answer) as url, Address(f"{url}/v1") as address:
        model = ChatModel(address, "some-model", TOOLS, window=8_000)
        tool_env = StatelessToolEnv(FakeSandbox())
        purifier = Purifier()
        made = await rollout(
            TASK, KEY, prompt=STATELESS, model=model, tool_env=tool_env, seeds=SEEDS, purifier=purifier
        )
        graders = {"choice": ChoiceGrader()}
        trajectory = await grade_and_purify(
            made, TASK, model=model, tool_env=tool_env, graders=graders, seeds=SEEDS, purifier=purifier
        )
    assert trajectory.stop_reason is StopReason.ANSWERED
    assert trajectory.success
    assert isinstance(trajectory.prompt, TextSpan)
    assert residual_tally(trajectory).failed == 0
    assert [edit.commits for _, edit in trajectory.edits] == [True]
    # The malformed call got feedback, in a message of its own, and was sent back without its arguments.
    retried = service.bodies[2]["messages"]
    assert [each["role"] for each in retried[-4:]] == ["assistant", "tool", "assistant", "tool"]
    assert "not valid JSON" in retried[-1]["content"] or "breaks off" in retried[-1]["content"]
    assert retried[-2]["tool_calls"][0]["function"]["arguments"] == "{}"
    assert retried[-1]["tool_call_id"] == retried[-2]["tool_calls"][0]["id"]
    # The clean history holds the correction alone.
    clean = service.bodies[3]["messages"]
    assert [each["role"] for each in clean[-3:]] == ["user", "assistant", "tool"]
    assert json.loads(clean[-2]["tool_calls"][0]["function"]["arguments"]) == {"code": "errors"}
    assert service.bodies[0]["tools"][0]["function"]["name"] == "python"
    assert service.bodies[0]["seed"] == SEEDS.request(0)


@pytest.mark.parametrize(("path", "given"), [("/v1", ""), ("/v1", "/"), ("/v1", "/v1/"), ("/api/v4", "/api/v4")])
@asynchronous
async def test_a_chat_api_is_asked_below_v1_unless_its_address_has_a_path(path: str, given: str) -> None:
    service = ChatApi({"content": "Yes."})
    async with standing_in(f"{path}/chat/completions", service.answer) as url:
        connection = Connection((f"{url}{given}",), "some-model", EngineKind.CHAT, patience=0)
        async with connect(connection, STATELESS) as model:
            context = Trajectory(model.begin(STATELESS.messages(TASK)), key=KEY)
            assert (await model.sample(SampleRequest(context, 1, 400, 0))).turn.text == "Yes."


@asynchronous
async def test_a_chat_api_keeps_thinking_apart_and_says_when_it_was_cut_off() -> None:
    service = ChatApi({"content": "Yes.", "reasoning_content": "Hm."}, {"content": "Ye", "finish_reason": "length"})
    async with standing_in("/chat/completions", service.answer) as url, Address(url) as address:
        model = ChatModel(address, "m", TOOLS, window=8_000)
        context = Trajectory(model.begin(STATELESS.messages(TASK)), key=KEY)
        draft = await model.sample(SampleRequest(context, 1, 400, 0))
        assert draft.turn.text == "<think>\nHm.\n</think>\n\nYes."
        assert draft.complete
        assert service.bodies[0]["max_tokens"] == 100
        assert not (await model.sample(SampleRequest(context, 1, 400, 0))).complete


@asynchronous
async def test_a_cancelled_request_closes_its_connection() -> None:
    gone = asyncio.Event()
    there = asyncio.Event()

    async def handler(request: web.Request) -> web.Response:
        there.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            gone.set()
            raise
        return web.Response()

    app = web.Application()
    app.router.add_post("/x", handler)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with Address(f"http://127.0.0.1:{runner.addresses[0][1]}") as address:
        task = asyncio.create_task(address.post("/x", {}))
        await there.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(gone.wait(), 10)
    await runner.cleanup()


@asynchronous
async def test_a_replica_that_is_away_holds_nobody_up(tmp_path: Path) -> None:
    tokenizer("qwen3").save_pretrained(tmp_path)
    away = f"http://127.0.0.1:{free_port()}"

    async def models(request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "m", "max_model_len": 4_000}]})

    async with standing_in("/v1/models", models, "GET") as url:
        many = Connection((away, url), str(tmp_path), patience=600)
        async with asyncio.timeout(120), connect(many, STATELESS) as model:
            assert model.window == 4_000
    nobody = Connection((away, f"{away}/other"), str(tmp_path), patience=0.2)
    with pytest.raises(EngineFaultError, match="no engine answers"):
        async with connect(nobody, STATELESS):
            pass

"""One event loop serves everybody: what grows with a request is bounded, or done in steps between which others run."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner_sandbox import BARE, SCIENCE, OutputPreview, RunOutcome, RunRequest, environments
from cleaner_sandbox.node import files, verdict
from cleaner_sandbox.protocol.requests import input_problem
from cleaner_sandbox.protocol.results import RunStatus
from cleaner_sandbox.protocol.wire import Outcome, encode
from cleaner_sandbox.service import fair_queue, http
from cleaner_sandbox.service.app import App
from tests.serving import Caller, asynchronous, opened, until
from tests.watched import WatchedNode


class Turns:
    """How often the event loop came round."""

    count = 0


@contextlib.asynccontextmanager
async def counted() -> AsyncIterator[Turns]:
    turns = Turns()

    async def count() -> None:
        while True:
            turns.count += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await asyncio.sleep(0)
    turns.count = 0
    yield turns
    counting.cancel()


MANY = 140_000


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/runs", b'{"calls":[' + b'{"code":""},' * MANY + b'{"code":""}]}'),
        ("/v1/run", b'{"code":"","files":{' + b",".join(b'"%x":""' % number for number in range(MANY)) + b"}}"),
        ("/v1/run", b'{"code":"","fetch":[' + b'"\\\\",' * 2 * MANY + b'""]}'),
        ("/run/batch", b'{"submissions":[' + b'{"type":"python","solution":""},' * MANY + b"{}]}"),
        ("/run_jupyter", b'{"cells":[' + b'"",' * MANY + b'""]}'),
        ("/v1/run", b'{"code":"' + b" " * http.MOST_JSON + b'"}'),
        ("/v1/run", b'{"code":"' + b"\\n" * (http.MOST_ESCAPES + 1) + b'"}'),
        ("/run_code", b'{"code":"","x":[' + b"1," * (http.MOST_COMMAS + 1) + b"1]}"),
        ("/v1/run", b'{"code":"' + b" " * http.MOST_WIDE_JSON + "\N{GRINNING FACE}".encode() + b'"}'),
    ],
    ids=["calls", "files", "fetch", "submissions", "cells", "code", "escapes", "commas", "rare characters"],
)
@asynchronous
async def test_finding_event_loop_a_body_of_too_much_is_refused_before_it_is_decoded(
    path: str, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[int] = []

    class Decoder:
        def decode(self, data: bytes) -> None:
            decoded.append(len(data))

    for module in ("runs", "code_judge", "fusion"):
        for name in ("_run_decoder", "_batch_decoder", "_one_decoder", "_code_decoder", "_jupyter_decoder"):
            monkeypatch.setattr(f"cleaner_sandbox.service.{module}.{name}", Decoder(), raising=False)
    async with (
        opened(WatchedNode()) as (url, _),
        Caller(url) as caller,
        caller.http.post(path, data=io.BytesIO(body)) as response,
    ):
        assert (response.status, (await response.json())["error"]) == (413, "too_large")
    assert decoded == []


@asynchronous
async def test_a_long_program_full_of_quotes_is_no_body_of_many_strings() -> None:
    code = "print(len('" + '"' * 1_000_000 + "'))"
    async with opened(WatchedNode()) as (url, _), Caller(url) as caller:
        body = io.BytesIO(json.dumps({"code": code}).encode())
        async with caller.http.post("/v1/run", data=body) as response:
            assert (await response.json())["output"] == "1000000\n"


@given(texts=st.lists(st.text(st.sampled_from('a"\\\n,:u[') | st.characters(codec="utf-8"), max_size=9), max_size=40))
def test_at_least_half_of_a_body_s_strings_are_counted_and_every_backslash(texts: list[str]) -> None:
    for ascii_only in (True, False):
        body = json.dumps(texts, ensure_ascii=ascii_only).encode()
        weight = asyncio.run(http._weighed(body))
        assert 2 * weight.strings + 1 >= len(texts)
        assert (weight.escapes, weight.commas) == (body.count(b"\\"), body.count(b","))
        assert weight.wide or "".join(texts).isascii()


@asynchronous
async def test_finding_an_escape_between_two_steps_is_seen() -> None:
    body = b'{"code":"' + b"x" * (http.STEP - 10) + b'\\u4e2d"}'
    assert body.index(b"\\") == http.STEP - 1
    assert (await http._weighed(body)).wide


@asynchronous
async def test_finding_event_loop_bodies_are_looked_at_in_steps() -> None:
    body = b'{"code":"' + b"x" * 8_000_000 + b'"}'
    async with counted() as turns:
        assert await http._weighed(body) == (2, 0, 0, False)
    assert turns.count >= 8_000_000 // http.STEP - 1


@pytest.mark.parametrize("text", [b"\\ud83d\\ude00", "\U0001f600".encode(), b"\\u0041"])
@asynchronous
async def test_a_body_whose_text_takes_more_memory_than_it_counts_as_what_it_takes(text: bytes) -> None:
    node = WatchedNode()
    node.gate.clear()
    async with opened(node) as (url, app), Caller(url) as caller:
        body = b'{"code":"#' + b"x" * 100_000 + text + b'"}'
        asked = asyncio.create_task(caller.http.post("/v1/run", data=body))
        await until(lambda: app.queue.running == 1)
        assert app.queue.bytes == 4 * len(body)
        node.gate.set()
        (await asked).close()


DEEP = b"[" * 200_000 + b"]" * 200_000


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/run", b'{"code":"1","files":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}"),
        ("/v1/runs", DEEP),
        ("/v1/sessions", b'{"files":' + DEEP + b"}"),
        ("/run", b'{"solution":"print(1)","type":"python","x":' + DEEP + b"}"),
        ("/run/batch", b'{"submissions":[],"x":' + DEEP + b"}"),
        ("/run_code", b'{"code":"print(1)","language":"python","x":' + DEEP + b"}"),
        ("/run_jupyter", b'{"cells":["1"],"x":' + DEEP + b"}"),
        ("/run_code", b'{"code":"1","language":"python","run_timeout":-1}'),
        ("/run_code", b'{"code":"1","language":"python","run_timeout":1e308}'),
        ("/v1/run", b'{"code":"1","limits":{"wall_seconds":1e400}}'),
        ("/v1/run", b'{"code":"1","limits":{"memory_mb":0}}'),
        ("/v1/run", b'{"code":"\xff"}'),
        ("/v1/run", b'{"code":"\\ud800"}'),
    ],
)
@asynchronous
async def test_finding_deep_json_and_other_nonsense_is_the_callers_mistake(path: str, body: bytes) -> None:
    async with (
        opened(WatchedNode()) as (url, _),
        Caller(url) as caller,
        caller.http.post(path, data=io.BytesIO(body)) as response,
    ):
        assert (response.status, (await response.json())["error"]) == (400, "invalid_request")


@asynchronous
async def test_finding_event_loop_long_results_are_encoded_in_steps() -> None:
    outcome = Outcome(
        id="a",
        status=RunStatus.OK,
        output="\0\U0001f600\ud800" * 200_000,
        stderr="short",
        files={"f": bytes(range(256)) * 4_001, "g": b"short"},
    )
    whole = encode(outcome)
    async with counted() as turns:
        stepwise = b"".join(await http.encode_in_steps(outcome))
    assert json.loads(stepwise) == json.loads(whole)
    assert turns.count >= (600_000 + 256 * 4_001) // http.STEP


@pytest.mark.parametrize("keep", [0, 1_000, 1 << 30])
@asynchronous
async def test_finding_event_loop_output_is_read_in_steps(keep: int) -> None:
    data = ("\U0001f600ä".encode() + b"\xff\xe2\x82") * 123_457
    descriptor = os.memfd_create("output")
    try:
        os.write(descriptor, data)
        async with counted() as turns:
            text, length, flooded = await verdict._text(descriptor, len(data) - 1, keep)
    finally:
        os.close(descriptor)
    whole = data[:-1].decode("utf-8", "replace")
    assert (text, length, flooded) == (whole[:keep], len(whole) if len(whole) > keep else None, True)
    assert turns.count >= len(data) // verdict.STEP


@asynchronous
async def test_finding_event_loop_files_are_fetched_in_steps(tmp_path: Any) -> None:
    deep = "/".join("d" * 15)
    (tmp_path / deep).mkdir(parents=True)
    names = [f"{deep}/{number}" for number in range(1_000)]
    for name in names[::2]:
        (tmp_path / name).write_bytes(name.encode())
    folder = os.open(tmp_path, os.O_PATH)
    try:
        async with counted() as turns:
            found = await files.fetched(folder, names, 1 << 20)
    finally:
        os.close(folder)
    assert found == ({name: name.encode() for name in names[::2]}, 0)
    assert turns.count >= 1_000 * 16 // (files.STEP + 16)


@pytest.mark.parametrize("python_at", [None, 3_999])
@asynchronous
async def test_finding_event_loop_submissions_that_are_not_run_are_answered_in_steps(
    python_at: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    submissions = [
        {"type": "python" if number == python_at else "cpp", "solution": "print(1)", "sub_id": str(number)}
        for number in range(4_000)
    ]
    answered: Counter[int] = Counter()
    async with opened(WatchedNode()) as (url, _), Caller(url) as caller, counted() as turns:

        def encode_and_count(value: object) -> bytes:
            answered[turns.count] += 1
            return encode(value)

        monkeypatch.setattr("cleaner_sandbox.service.code_judge.encode", encode_and_count)
        _, answer = await caller.post("/run/batch", {"submissions": submissions})
    assert [result["sub_id"] for result in answer["results"]] == [each["sub_id"] for each in submissions]
    assert [place for place, result in enumerate(answer["results"]) if result["success"]] == [python_at][
        : python_at or 0
    ]
    assert max(answered.values()) <= fair_queue.AT_ONCE + 1


def test_finding_event_loop_deep_names_to_fetch_are_bounded_together() -> None:
    deep = tuple("d/" * 60 + f"f{number}" for number in range(4_000))
    assert "16,384 parts" in (input_problem(RunRequest("", fetch=deep)) or "")
    assert input_problem(RunRequest("", fetch=deep[:200], files=dict.fromkeys(deep[:3_000], b""))) is None


def test_finding_event_loop_only_the_head_of_a_long_program_is_searched_for_imports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched: list[int] = []

    def watched(search: Callable[..., set[str]]) -> Callable[..., set[str]]:
        def searching(code: str, *more: object) -> set[str]:
            searched.append(len(code))
            return search(code, *more)

        return searching

    monkeypatch.setattr(environments, "imports_of", watched(environments.imports_of))
    monkeypatch.setattr(environments, "mentioned", watched(environments.mentioned))
    padding = "import os\n" * 100_000
    assert environments.choose(padding, (BARE, SCIENCE)) is BARE
    assert environments.choose(f"{padding}import numpy", (BARE, SCIENCE)) is SCIENCE
    assert environments.choose(f"import numpy\n{padding}", (BARE, SCIENCE)) is SCIENCE
    split = "#" * (environments.SCANNED_CHARS - 10) + "\nimport numpy"
    assert environments.choose(split, (BARE, SCIENCE)) is SCIENCE
    assert max(searched) <= environments.SCANNED_CHARS
    assert environments.choose(" " * (environments.SEARCHED_CHARS + 1), (BARE, SCIENCE)) is SCIENCE


@pytest.mark.parametrize("ends", ["caller leaves", "drain"])
@asynchronous
async def test_finding_event_loop_calls_that_never_start_are_answered_in_steps(
    ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = WatchedNode(slots=1)
    node.gate.clear()
    async with opened(node) as (url, app), Caller(url) as caller, counted() as turns:
        ended: list[int] = []
        call_ended = app.observer.call_ended

        def ending(*arguments: Any) -> None:
            ended.append(turns.count)
            call_ended(*arguments)

        monkeypatch.setattr(app.observer, "call_ended", ending)
        asked = asyncio.create_task(caller.http.post("/v1/runs", json={"calls": [{"code": ""}] * 5_000}))
        await until(lambda: app.queue.waiting == 4_999)
        if ends == "drain":
            app.queue.drain()
            node.gate.set()
            async with await asked as response:
                lines = [json.loads(line) async for line in response.content]
            assert sorted(line["index"] for line in lines) == list(range(5_000))
            assert sum(line.get("fault") == "draining" for line in lines) == 4_999
        else:
            asked.cancel()
        await until(lambda: len(ended) == 5_000)
        await until(lambda: (app.queue.running, app.queue.waiting, app.queue.bytes) == (0, 0, 0))
    most = max(ended.count(turn) for turn in set(ended))
    assert most <= fair_queue.AT_ONCE + 1


@asynchronous
async def test_finding_event_loop_requests_without_a_token_are_answered_one_at_a_time(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text('[tokens.me]\ntoken = "0123456789abcdef"\n')
    async with opened(WatchedNode(), tokens) as (_, app), counted() as turns:
        answered: list[int] = []

        async def send(message: http.Message) -> None:
            if message["type"] == "http.response.start":
                answered.append(turns.count)

        async def receive() -> http.Message:
            return {"type": "http.request", "body": b""}

        scope = {"type": "http", "method": "GET", "path": "/ping", "headers": [], "state": {"known": lambda _: None}}
        known = scope | {"headers": [(b"authorization", b"Bearer 0123456789abcdef")]}
        strangers = [asyncio.create_task(app(scope, receive, send)) for _ in range(50)]
        before = turns.count
        await app(known, receive, send)
        assert turns.count - before <= 1
        await asyncio.gather(*strangers)
    assert len(answered) == 51
    assert max(answered.count(turn) for turn in answered[1:]) <= 2


class HeldNode(WatchedNode):
    """Its first call ends when it may."""

    def __init__(self) -> None:
        super().__init__(slots=4)
        self.first = asyncio.Event()

    async def run(self, request: RunRequest, preview: OutputPreview | None = None) -> RunOutcome:
        outcome = await super().run(request, preview)
        if request.request_id == "first":
            await self.first.wait()
        return outcome


async def still(app: App) -> None:
    """Until only the first call runs, and no other starts."""
    await until(lambda: app.queue.running == 1)
    for _ in range(20):
        await asyncio.sleep(0.01)
        await until(lambda: app.queue.running == 1)


@asynchronous
async def test_finding_batch_outputs_are_sent_in_order_as_they_come_and_few_are_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fair_queue, "UNREAD_BYTES", 1_000_000)
    node = HeldNode()
    code = "import sys\nsys.stdout.write('a' * 100_000 + '\U0001f600' + input())"
    batch = [{"type": "python", "solution": code, "input": str(number), "sub_id": str(number)} for number in range(60)]
    batch[0]["sub_id"] = "first"
    batch[7] = {"type": "cpp", "solution": ""}
    async with opened(node) as (url, app), Caller(url) as caller:
        asked = asyncio.create_task(caller.post("/run/long-batch", {"submissions": batch, "sub_id": "all"}))
        await still(app)
        assert len(node.ran) < 20
        assert 900_000 < app.queue.bytes < 2_000_000
        node.first.set()
        status, answer = await asked
        await until(lambda: app.queue.bytes == 0)
    assert (status, answer["sub_id"]) == (200, "all")
    results = answer["results"]
    assert [each["sub_id"] for each in results] == [each.get("sub_id") for each in batch]
    assert [each["stdout"][100_000:] for each in results if each["run_success"]] == [
        f"\U0001f600{number}" for number in range(60) if number != 7
    ]
    assert results[7]["reason"] == "invalid_input"


@asynchronous
async def test_finding_batch_outputs_of_all_requests_of_a_caller_are_bounded_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cleaner_sandbox.service.tenants.MOST_UNREAD", 1_000_000)
    node = HeldNode()
    batch = [{"type": "python", "solution": "print('x' * 100_000)", "sub_id": str(number)} for number in range(40)]
    batch[0]["sub_id"] = "first"
    async with opened(node) as (url, app), Caller(url) as caller:
        first = asyncio.create_task(caller.post("/run/batch", {"submissions": batch}))
        await still(app)
        second = asyncio.create_task(caller.post("/v1/run", {"code": "print(1)", "id": "second"}))
        await until(lambda: app.queue.waiting > 20)
        await still(app)
        assert "second" not in node.ran
        node.first.set()
        assert [each["run_success"] for each in (await first)[1]["results"]] == [True] * 40
        assert (await second)[1]["output"] == "1\n"
        await until(lambda: app.queue.bytes == 0)
    assert app.tenants.anonymous is not None
    assert app.tenants.anonymous.unread == 0

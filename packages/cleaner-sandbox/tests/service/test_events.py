"""What a program prints while it runs: a preview beside a result that stays what it is."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cleaner_sandbox import (
    BARE,
    Cell,
    Language,
    Node,
    NodeConfig,
    OutputPreview,
    OutputStream,
    OutputText,
    RunOutcome,
    RunRequest,
    SessionRequest,
    Tier,
)
from cleaner_sandbox.client import SandboxClient, SyncSandboxClient
from cleaner_sandbox.protocol.results import RunStatus
from cleaner_sandbox.service import events
from tests.conftest import needs
from tests.serving import Caller, asynchronous, opened, scripted, until
from tests.watched import WatchedNode

ENDLESS = "import sys\nprint('begun')\nprint('é' * 3, file=sys.stderr)\nwhile True: pass"
SHORT = "import sys, time\nfor n in range(40):\n    print(n); time.sleep(0.01)\nprint('bad', file=sys.stderr)\n1 / 0"
VARYING = ("id", "cpu_seconds", "wall_seconds", "seconds", "peak_memory_mb")


async def streamed(caller: Caller, path: str, body: object) -> AsyncIterator[tuple[str, Any]]:
    async with caller.http.post(path, json=body, headers={"Accept": "text/event-stream"}) as response:
        assert (response.status, response.content_type) == (200, "text/event-stream")
        async for name, data in _events(response):
            yield name, json.loads(data)


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, str]]:
    while block := await response.content.readuntil(b"\n\n"):
        if not block.startswith(b":"):
            name, data = block.decode().removesuffix("\n\n").split("\n")
            yield name.removeprefix("event: "), data.removeprefix("data: ")


def outputs_held() -> list[str]:
    """The files in memory that this process holds open for programs to print into."""
    held = []
    for file in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the listing's own is gone
            held.append(str(file.readlink()))
    return [name for name in held if name.startswith("/memfd:std")]


def printed(seen: list[tuple[str, Any]], stream: str) -> str:
    return "".join(data["text"] for name, data in seen if name == "output" and data["stream"] == stream)


@asynchronous
async def test_the_outcome_is_the_same_with_and_without_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "LOOK_SECONDS", 0.01)
    async with opened(WatchedNode()) as (url, app), Caller(url) as caller:
        seen = [event async for event in streamed(caller, "/v1/run", {"code": SHORT})]
        _, plain = await caller.post("/v1/run", {"code": SHORT})
        (name, outcome) = seen[-1]
        assert name == "outcome"
        assert [name for name, _ in seen[:-1]] == ["output"] * (len(seen) - 1)
        without = [{key: value for key, value in each.items() if key not in VARYING} for each in (outcome, plain)]
        assert without[0] == without[1]
        assert outcome["status"] == "error"
        assert outcome["output"].startswith(printed(seen, "stdout"))
        assert outcome["stderr"].startswith(printed(seen, "stderr"))
        assert (app.queue.running, app.queue.bytes) == (0, 0)


@asynchronous
async def test_what_is_printed_comes_while_the_program_runs_and_a_caller_that_leaves_ends_it() -> None:
    node = WatchedNode()
    async with opened(node) as (url, app):
        async with Caller(url) as caller:
            seen = []
            async for event in streamed(caller, "/v1/run", {"code": ENDLESS, "limits": {"cpu_seconds": 50}}):
                seen.append(event)
                if printed(seen, "stdout") == "begun\n" and printed(seen, "stderr") == "ééé\n":
                    break
        await until(lambda: node.killed == 1)
        assert (app.queue.running, app.queue.bytes) == (0, 0)


@asynchronous
async def test_a_request_that_is_refused_is_answered_as_usual() -> None:
    async with opened(WatchedNode()) as (url, app), Caller(url) as caller:
        headers = {"Accept": "text/event-stream"}
        async with caller.http.post("/v1/run", json={"cod": ""}, headers=headers) as response:
            assert (response.status, (await response.json())["error"]) == (400, "invalid_request")
        app.queue.draining = True
        async with caller.http.post("/v1/run", json={"code": ""}, headers=headers) as response:
            assert (response.status, (await response.json())["error"]) == (503, "draining")


@asynchronous
async def test_cells_have_events_too_and_a_session_that_is_lost_is_a_problem() -> None:
    needs(Tier.T2)
    async with opened(Node(NodeConfig(slots=1, environments=(BARE,)))) as (url, app), Caller(url) as caller:
        _, session = await caller.post("/v1/sessions", {"environment": "bare"})
        path = f"/v1/sessions/{session['session']}/run"
        seen = [event async for event in streamed(caller, path, {"code": SHORT.removesuffix("1 / 0")})]
        name, outcome = seen[-1]
        assert (name, outcome["status"], outcome["committed"], outcome["checkpoint"]) == ("outcome", "ok", True, 1)
        assert outcome["output"].startswith(printed(seen, "stdout"))
        seen, kept = [], app.node.session(session["session"])
        async for event in streamed(caller, path, {"code": ENDLESS, "limits": {"cpu_seconds": 50}}):
            seen.append(event)
            await kept.close()
        assert seen[-1][0] == "problem"
        assert seen[-1][1]["error"] == "session_lost"
        async with caller.http.post(path, json={"code": ""}, headers={"Accept": "text/event-stream"}) as response:
            assert response.status == 410


@pytest.mark.parametrize("language", Language)
@asynchronous
async def test_a_preview_is_read_while_a_cell_or_a_program_runs_and_leaves_nothing_open(language: Language) -> None:
    needs(Tier.T2)
    code = ENDLESS if language is Language.PYTHON else "echo begun; echo ééé >&2; while :; do :; done"
    texts = [OutputText(OutputStream.STDOUT, "begun\n"), OutputText(OutputStream.STDERR, "ééé\n")]
    async with Node(NodeConfig(slots=1, environments=(BARE,))) as node:
        session = await node.open_session(SessionRequest("bare", language=language))
        for in_session in (False, True):
            preview = OutputPreview()
            run = (
                session.run(Cell(code), preview)
                if in_session
                else node.run(RunRequest(code, language=language), preview)
            )
            running = asyncio.ensure_future(run)
            seen: list[OutputText] = []

            def shows_all(preview: OutputPreview = preview, seen: list[OutputText] = seen) -> bool:
                seen += preview.read()
                return seen == texts

            await until(shows_all)
            running.cancel()
            await asyncio.wait([running])
            assert preview.read() == []
        assert outputs_held() == []


def test_a_preview_keeps_to_the_bounds_of_the_result_and_to_the_first_attempt() -> None:
    preview = OutputPreview()
    take = preview.taker(output_bytes=5, keep_chars=4)
    files, again = ([os.memfd_create(name) for name in ("stdout", "stderr")] for _ in range(2))
    take(files)
    os.pwrite(files[0], b"abcdef", 0)
    os.pwrite(files[1], "aéé".encode()[:4], 0)  # of the last character only a half
    assert [(each.stream.value, each.text) for each in preview.read()] == [("stdout", "abcd"), ("stderr", "aé")]
    os.pwrite(files[1], "aéézz".encode(), 0)
    assert [each.text for each in preview.read()] == ["é"], "five bytes, and no more"
    assert preview.read() == []
    preview.close()
    take(again)
    assert preview.read() == []
    for file in (*files, *again):
        with pytest.raises(OSError):
            os.fstat(file)


@asynchronous
async def test_the_clients_stream_and_fall_back_to_a_run_without_a_preview(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "LOOK_SECONDS", 0.01)
    broken = {"left": 1}

    def breaks(request: RunRequest) -> bool:
        broken["left"] -= "# once" in request.code
        return "# once" in request.code and broken["left"] >= 0

    async with opened(WatchedNode(broken=breaks)) as (url, _), SandboxClient(url) as sandbox:
        *texts, outcome = [item async for item in sandbox.stream(SHORT)]
        assert isinstance(outcome, RunOutcome)
        assert outcome.result.status is RunStatus.ERROR
        shown = "".join(each.text for each in texts if isinstance(each, OutputText) and each.stream == "stdout")
        assert outcome.result.output.startswith(shown)
        (again,) = [item async for item in sandbox.stream("print(1) # once")]
        assert isinstance(again, RunOutcome)
        assert (again.result.output, again.attempts) == ("1\n", 2)
        (expired,) = [item async for item in sandbox.stream("while True: pass", within=0.2)]
        assert isinstance(expired, RunOutcome)
        assert expired.result.status is RunStatus.FAULT

        def use() -> list[OutputText | RunOutcome]:
            with SyncSandboxClient(url) as client:
                return list(client.stream("print(2)"))

        last = (await asyncio.to_thread(use))[-1]
        assert isinstance(last, RunOutcome)
        assert last.result.output == "2\n"
    async with scripted(429) as (url, _), SandboxClient(url) as sandbox:
        (outcome,) = [item async for item in sandbox.stream("print(1)")]
        assert isinstance(outcome, RunOutcome)
        assert outcome.result.status is RunStatus.OK

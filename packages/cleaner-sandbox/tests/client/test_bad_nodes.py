"""The client and nodes that are silent, lie, or answer with what no node answers: bounded, and nobody's failure."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
from collections.abc import AsyncIterator, Callable

import pytest

from cleaner_sandbox import RunOutcome, RunRequest, RunStatus, SessionLostError
from cleaner_sandbox.client import RequestRefusedError, SandboxClient, links, session
from tests.serving import asynchronous

OPENED = json.dumps({"session": "0" * 32}).encode()
DEEP = b'{"error":"x","id":"x","status":"ok","z":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
NO_UTF8 = b'{"error":"\xff","message":"\xff","id":"\xff","status":"ok"}\n'


def reply(status: int, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} x", f"content-length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


@contextlib.asynccontextmanager
async def answering(answer: Callable[[bytes], bytes | None]) -> AsyncIterator[tuple[str, list[bytes]]]:
    """The address of what answers to the head of a request, or never (None); and all heads."""
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError), contextlib.closing(writer):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    (line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")), b"0"
                )
                await reader.readexactly(int(length.rpartition(b":")[2]))
                heads.append(head)
                if (answered := answer(head)) is None:
                    await reader.read()
                    return
                writer.write(answered)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", heads


@asynchronous
async def test_finding_a_silent_node_holds_nobody_longer_than_they_would_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "ANSWER_SECONDS", 0.1)
    async with (
        answering(lambda head: None if b"/run " in head else reply(201, OPENED)) as (url, _),
        SandboxClient(url) as sandbox,
    ):
        opened = await sandbox.open_session()
        with pytest.raises(SessionLostError, match="did not answer within"):
            await opened.run("1", within=0.1)
    async with answering(lambda _: None) as (url, heads), SandboxClient(url, patience=0.3) as sandbox:
        with pytest.raises(SessionLostError, match="patience"):
            await sandbox.open_session()
        assert len(heads) == 1


@asynchronous
async def test_finding_programs_go_to_no_address_that_a_node_names() -> None:
    async with answering(lambda _: reply(200)) as (elsewhere, reached):
        moved = reply(307, b"", f"location: {elsewhere}/v1/runs")
        async with answering(lambda _: moved) as (url, _), SandboxClient(url, patience=1.0) as sandbox:
            with pytest.raises(RequestRefusedError, match="307"):
                await sandbox.run("print(1)")
            with pytest.raises(SessionLostError, match="307"):
                await sandbox.open_session()
    assert reached == []


@asynchronous
async def test_finding_no_answer_is_decompressed() -> None:
    packed = gzip.compress(b'{"error":"x","message":"unpacked"}')
    bad = reply(400, packed, "content-encoding: gzip")
    async with answering(lambda _: bad) as (url, heads), SandboxClient(url) as sandbox:
        with pytest.raises(RequestRefusedError, match="status 400"):
            await sandbox.run("print(1)")
    assert b"accept-encoding: identity" in heads[0].lower()


@pytest.mark.parametrize("status", [200, 500])
@asynchronous
async def test_finding_an_answer_of_too_many_bytes_is_given_up(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "MOST_LINE", 1_000)
    monkeypatch.setattr(links, "MOST_PROBLEM", 1_000)
    endless = reply(status, b"x" * 100_000)
    async with answering(lambda _: endless) as (url, _), SandboxClient(url, attempts=1) as sandbox:
        outcome = await sandbox.run("print(1)")
    assert outcome.result.status is RunStatus.FAULT
    assert "1000 bytes" in outcome.result.explanation


@pytest.mark.parametrize("body", [DEEP, NO_UTF8], ids=["deep", "no UTF-8"])
@asynchronous
async def test_finding_an_answer_that_can_not_be_decoded_is_a_fault_of_the_node(body: bytes) -> None:
    async with answering(lambda _: reply(200, body)) as (url, _), SandboxClient(url, attempts=1) as sandbox:
        outcome = await sandbox.run("print(1)")
        assert outcome.result.status is RunStatus.FAULT
        assert "The connection broke" in outcome.result.explanation
    async with answering(lambda _: reply(201, body)) as (url, _), SandboxClient(url, patience=0.3) as sandbox:
        with pytest.raises(SessionLostError):
            await sandbox.open_session()
    async with answering(lambda _: reply(400, body)) as (url, _), SandboxClient(url) as sandbox:
        with pytest.raises(RequestRefusedError, match="status 400"):
            await sandbox.run("print(1)")
        with pytest.raises(ValueError, match="status 400"):
            await sandbox.open_session()
    answers = iter([reply(201, OPENED), reply(200, body)])
    async with answering(lambda _: next(answers)) as (url, _), SandboxClient(url) as sandbox:
        opened = await sandbox.open_session()
        with pytest.raises(SessionLostError, match="could not be read"):
            await opened.run("1")


@asynchronous
async def test_finding_a_session_id_that_leads_elsewhere_is_none() -> None:
    strange = reply(201, b'{"session":"../../../healthz?x="}')
    async with answering(lambda _: strange) as (url, heads), SandboxClient(url, patience=0.3) as sandbox:
        with pytest.raises(SessionLostError, match="id that no node gives"):
            await sandbox.open_session()
    assert all(head.startswith(b"POST /v1/sessions ") for head in heads)


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [("0", 0.05), ("-1", 0.05), ("nan", 0.05), ("2.5", 2.5), ("1e999", 60.0), ("soon", 1.0), (None, 1.0)],
)
def test_finding_a_node_asks_for_a_pause_within_reason(asked: str | None, seconds: float) -> None:
    assert links.retry_seconds(asked) == seconds


@pytest.mark.parametrize(
    "said",
    [
        {"cpu_seconds": -5.0},
        {"wall_seconds": -0.1},
        {"seconds": -1.0},
        {"peak_memory_mb": -1.0},
        {"attempts": -(10**9)},
        {"attempts": 0},
        {"output_length": -1},
        {"files_left_out": -1},
        {"files": {"../../etc/x": "eA=="}},
        {"files": {"/abs": "eA=="}},
    ],
    ids=str,
)
@asynchronous
async def test_finding_figures_and_names_that_no_node_gives_are_not_believed(said: dict[str, object]) -> None:
    fine = {"id": "mine", "index": 0, "status": "ok", "output": "x"}

    async def run(answer: dict[str, object]) -> RunOutcome:
        line = json.dumps(answer).encode() + b"\n"
        async with answering(lambda _: reply(200, line)) as (url, _), SandboxClient(url, attempts=1) as sandbox:
            return await sandbox.run(RunRequest("print(1)", request_id="mine"))

    assert (await run(fine)).result.status is RunStatus.OK
    outcome = await run({**fine, **said})
    assert (outcome.result.status, outcome.files, outcome.attempts) == (RunStatus.FAULT, {}, 1)
    assert min(outcome.cpu_seconds, outcome.wall_seconds, outcome.peak_memory_mb) >= 0

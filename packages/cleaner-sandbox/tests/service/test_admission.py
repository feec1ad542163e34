"""What a connection may hold, and for how long, before anybody knows who it is."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from cleaner_sandbox import BARE, NodeConfig
from cleaner_sandbox.service import admission
from cleaner_sandbox.service import http as service_http
from cleaner_sandbox.service.server import Server
from cleaner_sandbox.service.supervisor import ServiceConfig, to_text
from tests.serving import Caller, asynchronous, opened, until
from tests.watched import WatchedNode

TOKEN = "0123456789abcdef"
HEAD = b"POST /v1/run HTTP/1.1\r\nhost: localhost\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.toml"
    path.write_text(f'[tokens.me]\ntoken = "{TOKEN}"\n')
    return path


@pytest.fixture
def two_tokens(tokens: Path) -> Path:
    tokens.write_text(f'{tokens.read_text()}[tokens.other]\ntoken = "{TOKEN[::-1]}"\n')
    return tokens


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def flood(port: int, begin: bytes, more: bytes) -> tuple[int, bytes]:
    """How much of an endless request a node takes, 4 MB at most, and what it says then."""
    sent = 0
    with socket.create_connection(("127.0.0.1", port), timeout=10) as caller:
        try:
            caller.sendall(begin)
            while sent < 4_194_304:
                caller.sendall(more)
                sent += len(more)
        except OSError:
            pass
        return sent, caller.recv(65_536) if sent < 4_194_304 else b""


@asynchronous
async def test_the_uvicorn_that_is_installed_keeps_the_bounds_and_one_that_does_not_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with opened(WatchedNode()) as (_, app):
        config = Server(app).config
        assert await admission.unheld(config) is None
        monkeypatch.setattr(admission.Connection, "data_received", HttpToolsProtocol.data_received)
        monkeypatch.setattr(admission, "ANSWER_SECONDS", 0.2)
        assert await admission.unheld(config) == "the bytes that a request may have beside its body"
        monkeypatch.setattr(admission.Connection, "connection_made", HttpToolsProtocol.connection_made)
        assert await admission.unheld(config) == "the time in which a request's head must arrive"


UNHELD = """
import sys
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from cleaner_sandbox.service import admission, server
admission.ANSWER_SECONDS = 0.2
admission.Connection.data_received = HttpToolsProtocol.data_received
raise SystemExit(server.main(sys.argv[1:]))
"""


@pytest.mark.parametrize(("host", "event"), [("0.0.0.0", "unusable"), ("127.0.0.1", "unbounded")])
def test_a_node_whose_bounds_do_not_hold_serves_this_machine_alone(host: str, event: str) -> None:
    with socket.create_server((host, 0)) as listening:
        settings = to_text(ServiceConfig(NodeConfig(slots=1, environments=(BARE,))))
        command = [sys.executable, "-c", UNHELD, str(listening.fileno()), settings]
        with subprocess.Popen(command, pass_fds=[listening.fileno()], stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            first = json.loads(server.stdout.readline())
            server.terminate()
            server.wait(60)
    assert (first["event"], "does not keep a bound" in first["message"]) == (event, True)


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (HEAD, b"".join(b"X%07d: y\r\n" % number for number in range(500))),
        (HEAD + b"x: ", b"y" * 8_192),
        (b"GET /", b"y" * 8_192),
        (b"", b"\r\n" * 4_096),
        (CHUNKED + b"1;x=", b"y" * 8_192),
        (CHUNKED + b"1\r\nx\r\n0\r\n", b"".join(b"X%07d: y\r\n" % number for number in range(500))),
        (CHUNKED, b"1\r\nx\r\n" * 1_000),
    ],
    ids=["headers", "header", "path", "empty lines", "chunk extension", "trailers", "tiny chunks"],
)
@asynchronous
async def test_finding_headers_without_end_are_refused(begin: bytes, more: bytes) -> None:
    async with opened(WatchedNode()) as (url, _):
        sent, answer = await asyncio.to_thread(flood, port_of(url), begin, more)
    assert sent < 4_194_304
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"] == "headers_too_large"


@asynchronous
async def test_a_large_body_in_small_chunks_is_taken() -> None:
    program = b'{"code": "print(1)#' + b"x" * 1_000_000 + b'"}'

    def ask(port: int) -> bytes:
        pieces = (program[start : start + 64] for start in range(0, len(program), 64))
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as caller:
            caller.request("POST", "/v1/run", pieces, encode_chunked=True, headers={"transfer-encoding": "chunked"})
            return caller.getresponse().read()

    async with opened(WatchedNode()) as (url, _):
        assert json.loads(await asyncio.to_thread(ask, port_of(url)))["output"] == "1\n"


@asynchronous
async def test_finding_what_follows_a_body_is_no_header(tokens: Path) -> None:
    async with opened(WatchedNode(), tokens) as (url, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(url))
        body = b'b\r\n{"code":""}\r\n0\r\n'
        writer.write(CHUNKED + body + b"authorization: Bearer %b\r\n\r\n" % TOKEN.encode())
        assert (await reader.readline()).startswith(b"HTTP/1.1 401 ")
        writer.close()


@asynchronous
async def test_no_more_than_a_few_requests_wait_on_one_connection() -> None:
    node = WatchedNode()
    node.gate.clear()
    async with opened(node) as (url, app):
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(url))
        body = b'{"code":""}'
        writer.write((HEAD + b"content-length: %d\r\n\r\n%b" % (len(body), body)) * 1_000)
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        writer.close()
        await until(lambda: app.queue.running == 0)


@asynchronous
async def test_finding_a_caller_that_leaves_ends_its_run_whatever_waits_behind_it() -> None:
    node = WatchedNode()
    node.gate.clear()
    async with opened(node) as (url, app):
        _, writer = await asyncio.open_connection("127.0.0.1", port_of(url))
        writer.write((HEAD + b'content-length: 11\r\n\r\n{"code":""}') * 2)
        await until(lambda: node.running == 1)
        writer.close()
        await until(lambda: app.queue.running == 0)
        assert (node.killed, len(node.ran)) == (1, 1)


ANSWERED = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
UNREAD_BODY = HEAD + b"content-length: 100\r\n\r\nx"


@pytest.mark.parametrize(
    "sent", [b"", b"GET /", ANSWERED + b"GET /", UNREAD_BODY], ids=["nothing", "half", "after another", "body"]
)
@asynchronous
async def test_finding_half_sent_requests_time_out(sent: bytes, tokens: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "HEAD_SECONDS", 0.2)
    monkeypatch.setattr(service_http, "BODY_SECONDS", 0.2)
    async with opened(WatchedNode(), tokens) as (url, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(url))
        writer.write(sent)
        async with asyncio.timeout(20):
            answer = await reader.read()  # to the end: the connection is closed
        writer.close()
    assert (b"HTTP/1.1 401 " if sent == UNREAD_BODY else b"HTTP/1.1 408 ") in answer


@asynchronous
async def test_finding_half_sent_requests_are_not_kept_alive_by_a_byte_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission, "HEAD_SECONDS", 0.5)
    async with opened(WatchedNode()) as (url, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(url))
        answer = asyncio.create_task(reader.read())
        async with asyncio.timeout(20):
            while not answer.done():
                writer.write(b"\r\n")
                await asyncio.sleep(0.05)
        writer.close()
    assert answer.result().startswith(b"HTTP/1.1 408 ")


@asynchronous
async def test_a_run_may_take_longer_than_its_request_may_take_to_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "HEAD_SECONDS", 0.1)
    monkeypatch.setattr(service_http, "BODY_SECONDS", 0.1)
    async with opened(WatchedNode()) as (url, _), Caller(url) as caller:
        _, body = await caller.post("/v1/run", {"code": "import time; time.sleep(0.5); print(1)"})
    assert body["output"] == "1\n"


@asynchronous
async def test_who_reads_nothing_of_a_long_answer_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "READ_SECONDS", 0.3)
    node = WatchedNode()
    async with opened(node) as (url, app):
        with socket.create_connection(("127.0.0.1", port_of(url))) as stalled:
            body = json.dumps({"code": "open('f', 'wb').write(bytes(12_000_000))", "fetch": ["f"]}).encode()
            await asyncio.to_thread(stalled.sendall, HEAD + b"content-length: %d\r\n\r\n%b" % (len(body), body))
            await until(lambda: app.queue.bytes > 12_000_000)
            await until(lambda: app.queue.bytes == 0)


@contextlib.contextmanager
def connections(url: str, source: str, count: int, data: bytes) -> Iterator[list[socket.socket]]:
    """Connections of one peer, each with so much sent."""
    with contextlib.ExitStack() as stack:
        address = ("127.0.0.1", port_of(url))
        made = [
            stack.enter_context(socket.create_connection(address, timeout=10, source_address=(source, 0)))
            for _ in range(count)
        ]
        for each in made:
            each.sendall(data)
        yield made


ASKED = HEAD + b'authorization: Bearer %b\r\ncontent-length: 19\r\n\r\n{"code":"print(1)"}' % TOKEN.encode()


@asynchronous
async def test_finding_half_sent_requests_of_one_peer_leave_half_of_the_connections_to_others(tokens: Path) -> None:
    async with opened(WatchedNode(), tokens, connections=32) as (url, app):
        with connections(url, "127.0.0.1", 17, b"GET /"):
            await until(lambda: len(app.admission._refused) == 3)
            assert len(app.admission._all) == 14
            with connections(url, "127.0.0.2", 1, ASKED) as (other,):
                answer = await asyncio.to_thread(other.recv, 65_536)
            assert answer.startswith(b"HTTP/1.1 200 ")
            with connections(url, "127.0.0.1", 1, ASKED) as (another,):
                answer = await asyncio.to_thread(another.recv, 65_536)
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: 1" in answer
        await until(lambda: not app.admission._all and not app.admission._refused)
    assert not app.admission._of_peer
    assert not app.admission._strangers_of


@asynchronous
async def test_finding_half_sent_requests_make_room_for_newer_ones_and_connections_with_a_token_do_not(
    tokens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "NEW_SECONDS", 0.0)
    async with opened(WatchedNode(), tokens, connections=32) as (url, app), Caller(url, TOKEN) as caller:
        assert (await caller.post("/v1/run", {"code": "print(1)"}))[0] == 200
        with connections(url, "127.0.0.1", 30, b"GET /") as held:
            with pytest.raises(ConnectionResetError):
                await asyncio.to_thread(held[0].recv, 1)
            assert (await caller.post("/v1/run", {"code": "print(2)"}))[1]["output"] == "2\n"
            with connections(url, "127.0.0.1", 1, ASKED) as (newcomer,):
                answer = await asyncio.to_thread(newcomer.recv, 65_536)
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert len(app.admission._all) <= 14


@asynchronous
async def test_finding_idle_connections_of_a_token_that_has_most_of_them_make_room(two_tokens: Path) -> None:
    async with opened(WatchedNode(), two_tokens, connections=32) as (url, app):
        with connections(url, "127.0.0.2", 14, ASKED) as some, connections(url, "127.0.0.3", 14, ASKED) as others:
            for each in (*some, *others):
                assert (await asyncio.to_thread(each.recv, 65_536)).startswith(b"HTTP/1.1 200 ")
            asked = ASKED.replace(TOKEN.encode(), TOKEN[::-1].encode())
            with connections(url, "127.0.0.1", 14, asked) as newcomers:
                for each in newcomers:
                    assert (await asyncio.to_thread(each.recv, 65_536)).startswith(b"HTTP/1.1 200 ")
            assert len(app.admission._known_of["me"]) == 14, "to half of all"


def test_peers_are_told_apart_by_the_network_that_one_of_them_can_own() -> None:
    peer = admission._peer
    assert peer(("10.0.0.1", 5)) == peer(("::ffff:10.0.0.1", 6)) != peer(("10.0.0.2", 5))
    assert peer(("2001:db8::1", 5)) == peer(("2001:db8::ffff:1", 5)) != peer(("2001:db8:0:1::1", 5))
    assert peer(("fe80::1%eth0", 5)) == peer(("fe80::2", 5))

"""The client: right answers to the right callers, whatever the nodes do."""

from __future__ import annotations

import asyncio
import random
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cleaner_sandbox import Language, Node, NodeConfig, RunRequest, SessionLostError
from cleaner_sandbox.client import RequestRefusedError, SandboxClient, SyncSandboxClient
from cleaner_sandbox.client.links import Link
from cleaner_sandbox.client.nodes import Nodes
from cleaner_sandbox.protocol.results import RunStatus
from cleaner_sandbox.protocol.wire import RunCall, encode_exactly
from tests.serving import asynchronous, opened, scripted, served, until
from tests.watched import WatchedNode

BARE_NODE = NodeConfig(slots=4)


def broken_at_random(share: float) -> WatchedNode:
    """A node that loses this share of its calls."""
    luck = random.Random(7)
    return WatchedNode(4, lambda _: luck.random() < share)


@asynchronous
async def test_results_have_status_exception_line_output_and_versions() -> None:
    async with Node(BARE_NODE) as node, served(node) as (url, _), SandboxClient(url) as sandbox:
        right = await sandbox.run("print('hi')")
        wrong = await sandbox.run(RunRequest("x = 1\nraise ValueError('no')", request_id="mine"))
        files = await sandbox.run(
            RunRequest("open('b', 'wb').write(open('a', 'rb').read()[::-1])", files={"a": b"\0\xff"}, fetch=("b",))
        )
        binary = await sandbox.run(RunRequest("import sys; print(sys.stdin.buffer.read())", stdin=b"\xff"))
        shell = await sandbox.run(RunRequest("cat; exit 3", stdin=b"in", language=Language.BASH))
    assert (right.result.status, right.result.output) == (RunStatus.OK, "hi\n")
    assert "python" in right.result.versions
    assert wrong.result.exception is not None
    assert (wrong.result.exception.type, wrong.result.exception.line, wrong.request_id) == ("ValueError", 2, "mine")
    assert files.files == {"b": b"\xff\0"}
    assert binary.result.output == "b'\\xff'\n"
    assert (shell.result.status, shell.result.output, shell.exit_code) == (RunStatus.ERROR, "in", 3)


def test_a_request_for_python_is_what_older_nodes_know() -> None:
    assert encode_exactly(RunCall.of(RunRequest("print(1)"))) == b'{"code":"print(1)"}'
    assert encode_exactly(RunCall.of(RunRequest("ls", language=Language.BASH))) == b'{"code":"ls","language":"bash"}'


@asynchronous
async def test_x16_retries_of_part_of_a_batch_bring_no_result_to_the_wrong_caller() -> None:
    nodes = [broken_at_random(0.3), broken_at_random(0.3)]
    async with (
        opened(nodes[0]) as (one, _),
        opened(nodes[1]) as (two, _),
        SandboxClient([one, two], connections=3, attempts=50) as sandbox,
    ):
        outcomes = await asyncio.gather(*(sandbox.run(f"print({n})") for n in range(200)))
    assert [outcome.result.output for outcome in outcomes] == [f"{n}\n" for n in range(200)]
    assert sum(len(node.ran) for node in nodes) > 220, "nothing was retried, so this shows nothing"


@asynchronous
async def test_x16_callers_that_chose_the_same_id_get_their_own_results() -> None:
    async with Node(BARE_NODE) as node, served(node) as (url, _), SandboxClient(url, connections=1) as sandbox:
        outcomes = await asyncio.gather(*(sandbox.run(RunRequest(f"print({n})", request_id="same")) for n in range(60)))
    assert [outcome.result.output for outcome in outcomes] == [f"{n}\n" for n in range(60)]


@asynchronous
async def test_a_retry_goes_elsewhere_under_the_same_id() -> None:
    bad, good = broken_at_random(1.0), WatchedNode()
    async with opened(bad) as (one, _), opened(good) as (two, _), SandboxClient([one, two]) as sandbox:
        outcomes = await asyncio.gather(*(sandbox.run(RunRequest("print(1)", request_id=f"r{n}")) for n in range(20)))
    assert {outcome.result.status for outcome in outcomes} == {RunStatus.OK}
    assert bad.ran, "the broken node was never asked"
    assert set(bad.ran) <= set(good.ran)
    assert len(bad.ran) == len(set(bad.ran))


@asynchronous
async def test_a_call_that_breaks_every_node_is_a_fault_after_so_many_attempts() -> None:
    bad = broken_at_random(1.0)
    async with opened(bad) as (url, _), SandboxClient(url, attempts=3) as sandbox:
        outcome = await sandbox.run("print(1)")
    assert outcome.result.status is RunStatus.FAULT
    assert len(bad.ran) == 3
    assert outcome.attempts == 6, "each node tries twice"


@asynchronous
async def test_a_full_node_makes_the_caller_wait_and_loses_nothing() -> None:
    node = WatchedNode(slots=2)
    async with opened(node, most_waiting=4) as (url, app), SandboxClient(url, connections=8) as sandbox:
        outcomes = await asyncio.gather(*(sandbox.run(f"print({n})") for n in range(40)))
        refused = 'cleaner_sandbox_refused_requests_total{error="queue_full"}' in app.observer.text().decode()
    assert [outcome.result.output for outcome in outcomes] == [f"{n}\n" for n in range(40)]
    assert refused, "the queue never was full, so this shows nothing"


@asynchronous
async def test_patience_with_full_and_absent_nodes_is_bounded_and_ends_in_a_fault() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}"
    async with SandboxClient(nobody, patience=0.3) as sandbox:
        outcome = await sandbox.run("print(1)")
    assert outcome.result.status is RunStatus.FAULT
    assert "reached" in outcome.result.explanation
    node = WatchedNode(slots=1)
    async with opened(node, most_waiting=1) as (url, app), SandboxClient(url, patience=1.2, connections=4) as sandbox:
        hogs = [asyncio.create_task(sandbox.run("import time; time.sleep(60)")) for _ in range(2)]
        await until(lambda: app.queue.waiting + app.queue.running == 2)
        outcome = await sandbox.run("print(1)")
        assert outcome.result.status is RunStatus.FAULT
        for hog in hogs:
            hog.cancel()
        await asyncio.gather(*hogs, return_exceptions=True)
        await until(lambda: app.queue.running == 0)


@pytest.mark.parametrize("status", [408, 500, 502, 504])
@asynchronous
async def test_what_a_broken_node_or_its_proxy_answers_is_tried_again_under_the_same_id(status: int) -> None:
    async with scripted(status) as (url, sent), SandboxClient(url) as sandbox:
        outcome = await sandbox.run(RunRequest("print(1)", request_id="mine"))
    assert outcome.result.status is RunStatus.OK
    assert outcome.attempts == (1 if status == 408 else 2), "of a body that came too slowly nothing was begun"
    assert [call["id"] for batch in sent for call in batch["calls"]] == ["mine", "mine"]


@asynchronous
async def test_a_call_that_may_have_run_is_sent_only_so_often_and_is_then_a_fault() -> None:
    async with scripted(*[502] * 9) as (url, sent), SandboxClient(url, attempts=3) as sandbox:
        outcome = await sandbox.run("print(1)")
    assert outcome.result.status is RunStatus.FAULT
    assert "502" in outcome.result.explanation
    assert len(sent) == outcome.attempts == 3


@asynchronous
async def test_a_node_that_never_gets_the_whole_call_is_a_fault_when_patience_ends() -> None:
    async with scripted(*[408] * 9) as (url, _), SandboxClient(url, patience=0.3, attempts=1) as sandbox:
        assert (await sandbox.run("print(1)")).result.status is RunStatus.FAULT


@asynchronous
async def test_a_deadline_is_kept_by_both_sides_and_is_a_fault() -> None:
    node = WatchedNode(slots=1)
    async with opened(node) as (url, app), SandboxClient(url) as sandbox:
        endless = asyncio.create_task(sandbox.run("while True: pass", within=0.5))
        await until(lambda: node.running == 1)
        behind = await sandbox.run(RunRequest("print(1)", request_id="behind"), within=0.1)
        assert behind.result.status is RunStatus.FAULT
        assert (await endless).result.status is RunStatus.FAULT
        await until(lambda: app.queue.running == 0 and app.queue.waiting == 0)
    assert "behind" not in node.ran


@asynchronous
async def test_cancelling_a_call_kills_its_run() -> None:
    node = WatchedNode()
    async with opened(node) as (url, app), SandboxClient(url) as sandbox:
        call = asyncio.create_task(sandbox.run("while True: pass"))
        await until(lambda: node.running == 1)
        call.cancel()
        await until(lambda: node.killed == 1 and app.queue.running == 0)


@asynchronous
async def test_calls_survive_a_node_that_goes_away_in_the_middle() -> None:
    stays, leaves = WatchedNode(), WatchedNode()
    async with opened(stays) as (one, _), SandboxClient([one], connections=4) as sandbox:
        async with opened(leaves) as (two, app):
            sandbox._nodes._sources = (one, two)
            sandbox._nodes._looked = -1e9
            calls = [asyncio.create_task(sandbox.run(f"print({n})")) for n in range(100)]
            await until(lambda: len(leaves.ran) > 5)
            app.queue.drain()
        outcomes = await asyncio.gather(*calls)
    assert [outcome.result.output for outcome in outcomes] == [f"{n}\n" for n in range(100)]


@asynchronous
async def test_what_can_not_be_sent_is_the_programs_failure_and_harms_no_neighbour() -> None:
    node = WatchedNode()
    async with opened(node, most_body_mb=1) as (url, _), SandboxClient(url, connections=1) as sandbox:
        large = f"print(1)#{'x' * 2_000_000}"
        outcomes = await asyncio.gather(*(sandbox.run(code) for code in ("print(1)", "'\ud800'", large, "print(2)")))
    assert [outcome.result.status for outcome in outcomes] == [
        RunStatus.OK,
        RunStatus.MALFORMED,
        RunStatus.REFUSED,
        RunStatus.OK,
    ]


@asynchronous
async def test_a_wrong_token_is_told_to_the_program_that_has_it(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text('[tokens.me]\ntoken = "0123456789abcdef"\n')
    async with opened(WatchedNode(), tokens) as (url, _):
        async with SandboxClient(url, token="0123456789abcdef") as sandbox:
            assert (await sandbox.run("print(1)")).result.output == "1\n"
        async with SandboxClient(url, token="wrong") as sandbox:
            with pytest.raises(RequestRefusedError, match="token"):
                await sandbox.run("print(1)")


@asynchronous
async def test_the_next_call_goes_to_the_less_busy_of_two_and_not_to_one_that_rests() -> None:
    links: dict[str, Link] = {}

    def connect(url: str) -> Link:
        links[url] = Link(url, None, 1)  # type: ignore[arg-type]  # nothing is sent here
        return links[url]

    nodes = Nodes(["http://a:1", "http://b:1"], connect, patience=1.0)
    await nodes.pick()
    links["http://a:1"].outstanding = 5
    assert {(await nodes.pick()) for _ in range(20)} == {links["http://b:1"]}
    assert await nodes.pick(avoid=[links["http://b:1"]]) is links["http://a:1"]
    links["http://b:1"].rest(60)
    assert await nodes.pick() is links["http://a:1"]
    links["http://a:1"].rest(60)
    assert await nodes.pick() is None


@asynchronous
async def test_finding_silent_wait_a_client_without_a_node_says_at_once_and_in_the_end_how_long_it_waits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with SandboxClient("http://127.0.0.1:9", patience=1.5) as sandbox:
        calls = [asyncio.create_task(sandbox.run(code)) for code in "12"]
        await until(lambda: bool(caplog.records))
        assert not any(call.done() for call in calls)
        outcomes = await asyncio.gather(*calls)
        with pytest.raises(SessionLostError, match=r"http://127\.0\.0\.1:9 .* 1\.5 s"):
            await sandbox.open_session()
    (record,) = caplog.records
    assert "http://127.0.0.1:9; each call waits for one for 1.5 s" in record.getMessage()
    for outcome in outcomes:
        assert outcome.result.status is RunStatus.FAULT
        assert "No sandbox node at http://127.0.0.1:9 took the call within 1.5 s" in outcome.result.explanation
    caplog.clear()
    async with scripted(*[429] * 99) as (url, _), SandboxClient(url, patience=1.5) as sandbox:
        await sandbox.run("1")
    assert not caplog.records  # a full node has answered


@asynchronous
async def test_nodes_are_found_by_a_dns_name() -> None:
    node = WatchedNode()
    async with opened(node) as (url, _), SandboxClient(f"dns://localhost:{url.rpartition(':')[2]}") as sandbox:
        assert (await sandbox.run("print(1)")).result.output == "1\n"


@pytest.mark.parametrize("wrong", ["", "localhost:1", "dns://name", "ftp://x:1"])
def test_what_is_no_node_is_said_at_once(wrong: str) -> None:
    with pytest.raises(ValueError):
        Nodes([wrong] if wrong else [], lambda url: pytest.fail(url), patience=1.0)


@asynchronous
async def test_the_synchronous_client_serves_many_threads() -> None:
    async with Node(BARE_NODE) as node, served(node) as (url, _):

        def use() -> list[str]:
            with SyncSandboxClient(url) as sandbox:
                one = sandbox.run("print('one')")
                many = sandbox.run_many(f"print({n})" for n in range(20))
                return [outcome.result.output for outcome in (one, *many)]

        assert await asyncio.to_thread(use) == ["one\n", *(f"{n}\n" for n in range(20))]


def test_the_client_loads_neither_the_server_nor_what_only_a_node_needs() -> None:
    program = (
        "import sys, cleaner_sandbox.client\n"
        "print([name for name in ('uvicorn', 'prometheus_client', 'pyseccomp', 'ray', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"

"""The queue: bounds, turns, deadlines, callers that leave."""

from __future__ import annotations

import asyncio
import io
import json
import socket
from pathlib import Path

import aiohttp
import pytest

from cleaner_sandbox import BARE, Node, NodeConfig
from cleaner_sandbox.client import SandboxClient
from cleaner_sandbox.node.shares import Shares
from cleaner_sandbox.service import code_judge, http
from tests.serving import Caller, asynchronous, opened, until
from tests.watched import BREAK, WatchedNode

ENDLESS = "while True: pass"
SLEEPER = "import time; time.sleep(60)"


@asynchronous
async def test_x18_no_more_runs_at_once_than_there_are_slots() -> None:
    node = WatchedNode(slots=3)
    async with opened(node) as (url, _), Caller(url) as caller:
        calls = [{"code": f"print({n})", "id": str(n)} for n in range(20)]
        singles = [caller.post("/v1/run", call) for call in calls]
        batch = caller.http.post("/v1/runs", json={"calls": calls})
        answers = await asyncio.gather(*singles)
        async with batch as response:
            lines = [json.loads(line) async for line in response.content]
    assert [(status, body["output"]) for status, body in answers] == [(200, f"{n}\n") for n in range(20)]
    assert sorted((line["index"], line["id"], line["output"]) for line in lines) == sorted(
        (n, str(n), f"{n}\n") for n in range(20)
    )
    assert node.most_running == 3


@asynchronous
async def test_a_full_queue_says_when_to_come_back_and_takes_a_batch_whole_or_not_at_all() -> None:
    node = WatchedNode(slots=1)
    async with opened(node, most_waiting=4) as (url, app), Caller(url) as caller:
        blocker = asyncio.create_task(caller.post("/v1/run", {"code": SLEEPER}))
        await until(lambda: app.queue.running == 1)
        taken = asyncio.create_task(caller.post("/v1/run", {"code": "print(1)"}))
        await until(lambda: app.queue.waiting == 1)
        async with caller.http.post("/v1/runs", json={"calls": [{"code": "print(2)"}] * 4}) as response:
            assert response.status == 429
            assert int(response.headers["retry-after"]) >= 1
            assert (await response.json())["error"] == "queue_full"
        async with caller.http.post("/v1/runs", json={"calls": [{"code": "print(2)"}] * 5}) as response:
            assert response.status == 413
        assert app.queue.waiting == 1
        blocker.cancel()
        assert (await taken)[1]["output"] == "1\n"
    assert (app.queue.waiting, app.queue.running, app.queue.bytes) == (0, 0, 0)


@asynchronous
async def test_expired_work_is_answered_at_once_without_running() -> None:
    node = WatchedNode(slots=1)
    async with opened(node) as (url, _), Caller(url) as caller:
        _, late = await caller.post("/v1/run", {"code": "print(1)", "id": "late", "within": 0})
        blocker = asyncio.create_task(caller.post("/v1/run", {"code": SLEEPER, "id": "blocker"}))
        await until(lambda: node.running == 1)
        _, waited = await caller.post("/v1/run", {"code": "print(1)", "id": "waited", "within": 0.05})
        assert node.ran == ["blocker"]
        assert [(each["status"], each["fault"]) for each in (late, waited)] == [("fault", "expired")] * 2
        blocker.cancel()
        await until(lambda: node.killed == 1)


@asynchronous
async def test_a_deadline_that_passes_during_a_run_kills_it_and_is_no_verdict_about_the_program() -> None:
    node = WatchedNode()
    async with opened(node) as (url, app), Caller(url) as caller:
        _, body = await caller.post("/v1/run", {"code": ENDLESS, "within": 0.3})
        assert (body["status"], body["fault"]) == ("fault", "expired")
        assert node.killed == 1
        assert app.queue.running == 0


@asynchronous
async def test_a_run_is_killed_when_its_caller_leaves() -> None:
    node = WatchedNode(slots=1)
    async with opened(node) as (url, app):
        async with Caller(url) as caller:
            single = asyncio.create_task(caller.post("/v1/run", {"code": ENDLESS}))
            await until(lambda: node.running == 1)
            batch = asyncio.create_task(caller.post("/v1/runs", {"calls": [{"code": ENDLESS}] * 50}))
            await until(lambda: app.queue.waiting == 50)
            single.cancel()
            await until(lambda: node.killed == 1)
            await until(lambda: node.running == 1)
            batch.cancel()
        await until(lambda: node.killed == 2)
        await until(lambda: (app.queue.running, app.queue.waiting, app.queue.bytes) == (0, 0, 0))
        assert 'cleaner_sandbox_calls_total{endpoint="/v1/runs",status="gone"} 50.0' in app.observer.text().decode()


@asynchronous
async def test_a_single_call_does_not_wait_behind_a_whole_batch() -> None:
    node = WatchedNode(slots=1)
    node.gate.clear()
    async with opened(node) as (url, app), Caller(url) as caller:
        calls = [{"code": "print(1)", "id": f"b{n}"} for n in range(10)]
        batch = asyncio.create_task(caller.http.post("/v1/runs", json={"calls": calls}))
        await until(lambda: app.queue.waiting == 9)
        single = asyncio.create_task(caller.post("/v1/run", {"code": "print(1)", "id": "single"}))
        await until(lambda: app.queue.waiting == 10)
        node.gate.set()
        await single
        async with await batch as response:
            await response.read()
    assert node.ran.index("single") <= 2


@asynchronous
async def test_a_batch_that_a_token_may_never_have_waiting_is_too_large_and_the_client_sends_its_calls_alone(
    tmp_path: Path,
) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text('[tokens.small]\ntoken = "small-token-0000"\nwaiting = 3\n')
    node = WatchedNode(slots=2)
    node.gate.clear()
    async with opened(node, tokens) as (url, app), Caller(url, "small-token-0000") as caller:
        status, problem = await caller.post("/v1/runs", {"calls": [{"code": "print(1)"}] * 6})
        assert (status, problem["error"]) == (413, "too_many_calls")
        taken = asyncio.create_task(caller.http.post("/v1/runs", json={"calls": [{"code": "print(1)"}] * 5}))
        await until(lambda: (app.queue.running, app.queue.waiting) == (2, 3))  # those that run don't wait
        assert (await caller.post("/v1/run", {"code": "print(1)"}))[0] == 429
        node.gate.set()
        async with await taken as response:
            assert len((await response.text()).splitlines()) == 5
        async with SandboxClient(url, token="small-token-0000", connections=1) as sandbox:
            found = [outcome.result.output async for _, outcome in sandbox.run_many(["print(1)"] * 12)]
    assert found == ["1\n"] * 12


@asynchronous
async def test_tokens_share_the_node_by_their_quotas(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(
        '[tokens.small]\ntoken = "small-token-0000"\nrunning = 1\nwaiting = 2\n'
        '[tokens.large]\ntoken = "large-token-0000"\n'
    )
    node = WatchedNode(slots=2)
    async with (
        opened(node, tokens) as (url, app),
        Caller(url) as stranger,
        Caller(url, "small-token-0000") as small,
        Caller(url, "large-token-0000") as large,
    ):
        assert (await stranger.post("/v1/run", {"code": "print(1)"}))[0] == 401
        assert (await stranger.get("/healthz"))[0] == 200
        held = [asyncio.create_task(small.post("/v1/run", {"code": SLEEPER})) for _ in range(3)]
        await until(lambda: app.queue.waiting == 2)
        assert app.queue.running == 1
        status, body = await small.post("/v1/run", {"code": "print(1)"})
        assert (status, body["error"]) == (429, "queue_full")
        assert (await large.post("/v1/run", {"code": "print(2)"}))[1]["output"] == "2\n"
        async with aiohttp.ClientSession() as plain:
            with_password = url.replace("http://", "http://any:large-token-0000@")
            async with plain.post(f"{with_password}/run", json={"type": "python", "solution": "print(3)"}) as response:
                assert (await response.json())["stdout"] == "3\n"
        for task in held:
            task.cancel()


@asynchronous
async def test_a_batch_whose_reader_stalls_stops_starting_calls() -> None:
    node = WatchedNode(slots=4)
    flood = {"code": "open('f', 'wb').write(bytes(1_000_000))", "fetch": ["f"]}
    async with opened(node) as (url, app):
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as stalled:
            stalled.setblocking(False)
            body = json.dumps({"calls": [flood] * 200}).encode()
            head = b"POST /v1/runs HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body)
            await asyncio.get_running_loop().sock_sendall(stalled, head + body)
            await until(lambda: 0 < app.queue.waiting < 200)
            await until(lambda: app.queue.running == 0)
            assert app.queue.waiting > 100
            async with Caller(url) as caller:
                assert (await caller.post("/v1/run", {"code": "print(1)"}))[1]["output"] == "1\n"
        await until(lambda: app.queue.waiting == 0)


@asynchronous
async def test_draining_gives_back_what_waits_and_finishes_what_runs() -> None:
    node = WatchedNode(slots=1)
    node.gate.clear()
    async with opened(node) as (url, app), Caller(url) as caller:
        running = asyncio.create_task(caller.post("/v1/run", {"code": "print(1)"}))
        await until(lambda: app.queue.running == 1)
        waiting = asyncio.create_task(caller.post("/v1/runs", {"calls": [{"code": "print(2)"}]}))
        await until(lambda: app.queue.waiting == 1)
        app.queue.drain()
        assert (await waiting)[1]["fault"] == "draining"
        node.gate.set()
        assert (await running)[1]["output"] == "1\n"
        status, body = await caller.post("/v1/run", {"code": "print(3)"})
        assert (status, body["error"]) == (503, "draining")
        assert (await caller.get("/healthz"))[0] == 503


@asynchronous
async def test_a_broken_node_is_a_fault_in_every_dialect() -> None:
    node = WatchedNode()
    async with opened(node) as (url, _), Caller(url) as caller:
        _, ours = await caller.post("/v1/run", {"code": BREAK, "id": "a"})
        assert (ours["status"], ours["fault"], ours["attempts"]) == ("fault", "broken", 2)
        _, judged = await caller.post("/judge", {"type": "python", "solution": BREAK})
        assert (judged["success"], judged["run_success"], judged["reason"]) == (False, False, "internal_error")
        _, fusion = await caller.post("/run_code", {"code": BREAK, "language": "python"})
        assert (fusion["status"], fusion["run_result"]) == ("SandboxError", None)


@asynchronous
async def test_a_full_queue_is_their_own_word_for_it_in_the_other_dialects() -> None:
    node = WatchedNode(slots=1)
    async with opened(node, most_waiting=1) as (url, app), Caller(url) as caller:
        held = [asyncio.create_task(caller.post("/v1/run", {"code": SLEEPER})) for _ in range(2)]
        await until(lambda: app.queue.waiting == 1)
        _, judged = await caller.post("/run", {"type": "python", "solution": "print(1)"})
        assert (judged["run_success"], judged["reason"]) == (False, "queue_timeout")
        _, fusion = await caller.post("/run_code", {"code": "print(1)", "language": "python"})
        assert (fusion["status"], fusion["run_result"]) == ("SandboxError", None)
        for task in held:
            task.cancel()


@asynchronous
async def test_bodies_that_arrive_together_are_bounded_too() -> None:
    async with opened(WatchedNode(), most_held_mb=1, most_body_mb=1) as (url, app), Caller(url) as caller:
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as slow:
            slow.setblocking(False)
            head = b"POST /v1/run HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\n"
            await asyncio.get_running_loop().sock_sendall(slow, head + b" " * 900_000)
            await until(lambda: app._arrivals.bytes.held > 700_000)
            async with caller.http.post("/v1/run", data=io.BytesIO(b" " * 900_000)) as response:
                assert (response.status, response.headers["retry-after"]) == (429, "1")
            assert (await caller.post("/v1/run", {"code": "print(1)"}))[0] == 200
        await until(lambda: app._arrivals.bytes.held == 0)


@pytest.mark.parametrize("large", ["code", "stdin", "environment"])
@asynchronous
async def test_whatever_makes_a_request_large_counts_until_it_is_answered(large: str) -> None:
    node = WatchedNode(slots=1)
    node.gate.clear()
    async with opened(node, most_held_mb=1) as (url, app), Caller(url) as caller:
        first = asyncio.create_task(caller.post("/v1/run", {"code": "print(1)", "stdin": "x" * 600_000}))
        await until(lambda: app.queue.running == 1)
        status, problem = await caller.post("/v1/run", {"code": "print(1)", large: "x" * 600_000})
        assert (status, problem["error"]) == (429, "queue_full")
        node.gate.set()
        assert (await first)[0] == 200
        await until(lambda: app.queue.bytes == 0)


@pytest.mark.parametrize("begun", [b"", b"{"])
@asynchronous
async def test_a_body_that_does_not_come_is_given_up(monkeypatch: pytest.MonkeyPatch, begun: bytes) -> None:
    monkeypatch.setattr(http, "BODY_SECONDS", 0.3)
    async with opened(WatchedNode()) as (url, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(b"POST /v1/run HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n" + begun)
        async with asyncio.timeout(10):
            answer = await reader.read()  # to the end: the connection is closed
        writer.close()
    assert answer.startswith(b"HTTP/1.1 408 ")


@asynchronous
async def test_each_call_of_a_batch_has_its_own_deadline() -> None:
    node = WatchedNode(slots=1)
    calls = [
        {"code": ENDLESS, "id": "killed", "within": 0.5},
        {"code": "print(1)", "id": "late", "within": 0.1},
        {"code": "print(2)", "id": "patient"},
    ]
    async with opened(node) as (url, _), Caller(url) as caller:
        async with caller.http.post("/v1/runs", json={"calls": calls}) as response:
            outcomes = {line["id"]: line for line in [json.loads(line) async for line in response.content]}
        assert [outcomes[each].get("fault") for each in ("killed", "late", "patient")] == ["expired", "expired", None]
        assert outcomes["patient"]["output"] == "2\n"
    assert (node.killed, node.ran) == (1, ["killed", "patient"])


def test_code_judges_patience_is_for_the_start_and_a_program_that_runs_has_its_own_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(code_judge, "WAIT_SECONDS", 0.3)

    @asynchronous
    async def check() -> None:
        node = WatchedNode(slots=1)
        node.gate.clear()
        async with opened(node) as (url, app), Caller(url) as caller:
            batch = {"submissions": [{"type": "python", "solution": f"print({n})"} for n in range(2)]}
            asked = asyncio.create_task(caller.post("/run/batch", batch))
            await until(lambda: app.queue.running == 1)
            await until(lambda: app.queue.waiting == 0)
            assert app.queue.running == 1
            node.gate.set()
            _, answer = await asked
        assert [each["reason"] for each in answer["results"]] == ["", "queue_timeout"]
        assert [each["stdout"] for each in answer["results"]] == ["0\n", ""]
        assert node.killed == 0

    check()


TWO = '[tokens.alice]\ntoken = "alice-token-0000"\n[tokens.bob]\ntoken = "bobby-token-0000"\n'


@asynchronous
async def test_finding_a_token_that_fills_the_queue_leaves_the_others_their_part_of_it(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(TWO)
    node = WatchedNode(slots=1)
    node.gate.clear()
    async with (
        opened(node, tokens, most_waiting=8) as (url, app),
        Caller(url, "alice-token-0000") as alice,
        Caller(url, "bobby-token-0000") as bob,
    ):
        status, problem = await alice.post("/v1/runs", {"calls": [{"code": ""}] * 7})
        assert (status, problem["error"]) == (413, "too_many_calls")
        held = [asyncio.create_task(alice.post("/v1/run", {"code": ""})) for _ in range(7)]
        await until(lambda: (app.queue.running, app.queue.waiting) == (1, 6))
        assert (await alice.post("/v1/run", {"code": ""}))[0] == 429
        taken = [asyncio.create_task(bob.post("/v1/run", {"code": "print(1)"})) for _ in range(2)]
        await until(lambda: app.queue.waiting == 8)
        assert (await bob.post("/v1/run", {"code": ""}))[0] == 429
        node.gate.set()
        assert [status for status, _ in await asyncio.gather(*taken, *held)] == [200] * 9


POOL = """
import time
from concurrent.futures import ThreadPoolExecutor
def work(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
pool = ThreadPoolExecutor(4)
list(pool.map(work, [0.009] * 8));
"""


@asynchronous
async def test_finding_a_pool_that_is_shut_down_in_a_later_cell_stops_nobody(tmp_path: Path) -> None:
    """Its threads take what the kernel knew of their CPU time with them."""
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(TWO)
    async with (
        opened(Node(NodeConfig(slots=1, environments=(BARE,))), tokens) as (url, app),
        Caller(url, "alice-token-0000") as alice,
        Caller(url, "bobby-token-0000") as bob,
    ):
        _, session = await alice.post("/v1/sessions", {"environment": "bare"})
        for _ in range(6):
            for code in (POOL, "pool.shutdown()", "del pool"):
                _, outcome = await alice.post(f"/v1/sessions/{session['session']}/run", {"code": code})
                assert outcome["status"] == "ok"
                assert outcome.get("cpu_seconds", 0.0) >= 0.0
            assert (await bob.post("/v1/run", {"code": "print(1)"}))[1]["output"] == "1\n"
        assert app.queue.running == 0


@asynchronous
async def test_finding_bytes_of_one_token_leave_the_others_their_part_of_the_memory(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(TWO)
    node = WatchedNode(slots=1)
    async with (
        opened(node, tokens, most_held_mb=1, most_body_mb=1) as (url, app),
        Caller(url, "alice-token-0000") as alice,
        Caller(url, "bobby-token-0000") as bob,
    ):
        # Of bodies that arrive.
        some = json.dumps({"code": "#" * 250_000}).encode()
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as slow:
            slow.setblocking(False)
            head = b"POST /v1/run HTTP/1.1\r\nhost: x\r\nauthorization: Bearer alice-token-0000\r\n"
            whole = head + b"content-length: 900000\r\n\r\n" + b" " * 800_000
            await asyncio.get_running_loop().sock_sendall(slow, whole)
            await until(lambda: app._arrivals.bytes.held > 600_000)
            async with alice.http.post("/v1/run", data=io.BytesIO(some)) as response:
                assert response.status == 429
            async with bob.http.post("/v1/run", data=io.BytesIO(some)) as response:
                assert response.status == 200
        # Of requests that wait. A rare character makes one count four times.
        node.gate.clear()
        large = {"code": "#" + "x" * 150_000 + "\N{GRINNING FACE}"}
        held = asyncio.create_task(alice.post("/v1/run", large))
        await until(lambda: app.queue.bytes > 600_000)
        assert (await alice.post("/v1/run", large))[0] == 429
        taken = asyncio.create_task(bob.post("/v1/run", {"code": "#" * 200_000}))
        await until(lambda: app.queue.waiting == 1)
        node.gate.set()
        assert ((await taken)[0], (await held)[0]) == (200, 200)


def test_who_shares_with_nobody_may_have_all_of_it() -> None:
    alone = Shares(10, owners=1)
    alone.take("a", 9)
    assert (alone.most_of_one, alone.has_room("a", 1), alone.has_room("a", 2)) == (10, True, False)
    crowd = Shares(2, owners=100)
    crowd.take("a", 2)
    assert (crowd.most_of_one, crowd.has_room("a", 1), crowd.has_room("b", 1)) == (1, False, True)

"""Whatever raises, and whenever a caller leaves: the call is answered, and all that it held comes back.

Each request is sent again and again, disturbed at its first point, its second one and so on (`tests/injection.py`),
until it comes to its end undisturbed. Of one slot that were lost, or of one byte that were still counted, the next
tenant would hear.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cleaner_sandbox import BARE, Cell, Node, NodeConfig, RunRequest, SessionLostError, SessionRequest, Tier
from cleaner_sandbox.inside import wire
from cleaner_sandbox.service import about
from cleaner_sandbox.service.app import App
from tests.conftest import needs
from tests.injection import InjectedError, Injection
from tests.profile import SHORT
from tests.serving import Caller, opened, until

TOKENS = '[tokens.alice]\ntoken = "alice-token-0000"\n[tokens.bob]\ntoken = "bobby-token-0000"\n'
ALICE, BOB = "alice-token-0000", "bobby-token-0000"
WITHIN = 3
GRACE = 20.0
"""Seconds beyond that in which a busy machine must answer."""
STRIDE = 23 if SHORT else 1
"""From one point that is tried to the next one."""
LATER = 10 if SHORT else 100

# What is raised in callbacks of asyncio leaves coroutines that were never awaited, and sockets that it closes late.
pytestmark = [
    pytest.mark.timeout(1200),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::RuntimeWarning"),
]

Request = Callable[[Caller], Awaitable[object]]


async def another(caller: Caller) -> Any:
    return (await caller.post("/v1/run", {"code": "print(1)"}))[1]


async def run_and_fetch(caller: Caller) -> object:
    limits = {"disk_mb": 9}
    body = {"code": "open('f', 'w').write('x')", "fetch": ["*"], "limits": limits, "within": WITHIN}
    return await caller.post("/v1/run", body)


async def expire(caller: Caller) -> object:
    return await caller.post("/v1/run", {"code": "import time; time.sleep(60)", "within": 0.05})


async def batch(caller: Caller) -> object:
    async with caller.http.post("/v1/runs", json={"calls": [{"code": "print(1)"}] * 2, "within": WITHIN}) as answer:
        return await answer.read()


async def watch(caller: Caller) -> object:
    head = {"accept": "text/event-stream"}
    async with caller.http.post("/v1/run", json={"code": "print(1)", "within": WITHIN}, headers=head) as answer:
        return await answer.read()


async def judge(caller: Caller) -> object:
    return await caller.post("/run/batch", {"submissions": [{"type": "python", "solution": "print(1)"}] * 2})


async def jupyter(caller: Caller) -> object:
    return await caller.post("/run_jupyter", {"cells": ["print(1)"], "files": {"f": "eA=="}})


async def session(caller: Caller) -> object:
    status, body = await caller.post("/v1/sessions", {"environment": "bare", "files": {"f": "eA=="}})
    if status == 201:
        path = f"/v1/sessions/{body['session']}"
        cell = {"code": "x = 1", "fetch": ["*"], "within": WITHIN}
        for step, sent in (("run", cell), ("run", {**cell, "code": "1 / 0"}), ("rollback", {})):
            await caller.post(f"{path}/{step}", sent)
        await caller.get(f"{path}/files")
    return status, body


async def close_all_sessions(caller: Caller) -> None:
    """Those that an answer which never came would have named are still listed."""
    for each in (await caller.get("/v1/sessions"))[1]["sessions"]:
        async with caller.http.delete(f"/v1/sessions/{each['id']}") as answer:
            await answer.read()


def held(node: Node, app: App | None = None) -> dict[str, object]:
    """All that a call takes and must give back."""
    (pool,) = node._pools.values()
    found: dict[str, object] = {
        "node": (node._busy, node._waiting, node._free._value, len(node._sessions), +node._sessions._opening),
        "slots": (len(pool._slots), len(pool._idle), len(pool._indices)),
        "descriptors": len(os.listdir("/proc/self/fd")),
    }
    if app is not None:
        tenants = app.tenants._by_digest.values()
        found |= {
            "queue": (app.queue.running, app.queue.waiting, app.queue.bytes, app._arrivals.bytes.held),
            "tenants": [(each.running, each.unread, each._passing, len(each.sessions)) for each in tenants],
        }
    return found


async def is_given_back(node: Node, app: App | None, before: dict[str, object], place: str) -> None:
    with contextlib.suppress(TimeoutError):
        await until(lambda: held(node, app) == before, GRACE)
    assert held(node, app) == before, place


async def answered(doing: Awaitable[object], place: Callable[[], str] = str) -> object:
    """What it gives in time; None if it raised, or its caller left."""
    with contextlib.suppress(aiohttp.ClientError, ValueError, InjectedError, SessionLostError, asyncio.CancelledError):
        try:
            async with asyncio.timeout(WITHIN + GRACE):
                return await doing
        except TimeoutError:
            pytest.fail(f"no answer: {place()}")
    return None


async def disturbed(doing: Awaitable[object], at: int, leaves: bool) -> str:
    """Do something that is disturbed at a point; where that was."""
    task = asyncio.ensure_future(doing)
    with Injection(at, task.cancel if leaves else None) as injection:
        await answered(task, lambda: injection.place)
    return injection.place


DISTURBANCES = pytest.mark.parametrize("leaves", [False, True], ids=["raises", "leaves"])
REQUESTS = (run_and_fetch, expire, batch, watch, judge, session, jupyter)


@pytest.mark.slow  # an answer at every point takes minutes
@DISTURBANCES
@pytest.mark.parametrize("request_of", REQUESTS, ids=lambda each: each.__name__)
def test_liveness_whatever_raises_and_whoever_leaves_a_request_gives_back_all_it_had(
    request_of: Request, leaves: bool, tmp_path: Path
) -> None:
    if request_of in (session, jupyter):
        needs(Tier.T2)
    (tmp_path / "tokens").write_text(TOKENS)

    async def check() -> None:
        node = Node(NodeConfig(slots=1, environments=(BARE,), sessions=4))
        async with opened(node, tmp_path / "tokens") as (url, app):

            async def ask(token: str, request: Request) -> object:
                async with Caller(url, token) as caller:
                    return await request(caller)

            async def another_is_answered(place: str) -> None:
                found: Any = await answered(ask(BOB, another), lambda: place)
                assert found is not None, place
                assert found.get("output") == "1\n", (place, found)

            await ask(ALICE, request_of)
            await ask(ALICE, close_all_sessions)
            await another_is_answered("at first")
            before = held(node, app)
            for at in itertools.count(1, STRIDE):
                if not (place := await disturbed(ask(ALICE, request_of), at, leaves)):
                    break
                await another_is_answered(place)
                await ask(ALICE, close_all_sessions)
                await is_given_back(node, app, before, place)
            for _ in range(LATER):
                await another_is_answered("later")

    asyncio.run(check())


async def run_in_process(node: Node) -> object:
    return await node.run(RunRequest("open('f', 'w').write('x')", fetch=("*",)))


async def session_in_process(node: Node) -> object:
    session = await node.open_session(SessionRequest(files={"f": b"x"}))
    try:
        await session.run(Cell("x = 1", fetch=("*",)))
        await session.run("1 / 0")
        await session.rollback()
        return await session.list_files()
    finally:
        await session.close()


@DISTURBANCES
@pytest.mark.parametrize("work", [run_in_process, session_in_process], ids=lambda each: each.__name__)
def test_liveness_whatever_raises_and_whoever_leaves_a_node_gets_back_all_it_gave(
    work: Callable[[Node], Awaitable[object]], leaves: bool
) -> None:
    if work is session_in_process:
        needs(Tier.T2)

    async def check() -> None:
        async with Node(NodeConfig(slots=1, environments=(BARE,), sessions=4)) as node:
            await work(node)
            before = held(node)
            for at in itertools.count(1, STRIDE):
                if not (place := await disturbed(work(node), at, leaves)):
                    break
                assert (await node.run(RunRequest("print(1)"))).result.output == "1\n", place
                await is_given_back(node, None, before, place)

    asyncio.run(check())


async def health(caller: Caller) -> tuple[int, str, list[str]]:
    status, body = await caller.get("/healthz")
    return status, body["status"], body["stuck"]


def test_liveness_a_slot_that_does_not_answer_is_named_by_healthz_and_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(about, "CHECK_SECONDS", 0.0)
    monkeypatch.setattr(wire, "LATE_SECONDS", 1.0)
    monkeypatch.setattr(wire, "STARVED_SECONDS", 1.0)

    async def check() -> None:
        node = Node(NodeConfig(slots=1, environments=(BARE,)))
        async with opened(node) as (url, _), Caller(url) as caller:
            assert await health(caller) == (200, "ok", [])
            _, (supervisor,) = node.pids["bare"]
            os.kill(supervisor, signal.SIGSTOP)

            async def named() -> bool:
                return await health(caller) == (503, "stuck", ["bare"])

            async def well() -> bool:
                return await health(caller) == (200, "ok", [])

            await until(named, 60)
            await until(well, 60)
            assert (await another(caller))["output"] == "1\n"
            assert supervisor not in node.pids["bare"][1]

    asyncio.run(check())


def test_liveness_health_checks_wait_for_nobody_and_are_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(about, "CHECK_SECONDS", 0.0)

    async def check() -> None:
        node, begun, goes_on = Node(NodeConfig(slots=1, environments=(BARE,))), list[None](), asyncio.Event()

        async def stuck() -> list[str]:
            begun.append(None)
            await goes_on.wait()
            return []

        monkeypatch.setattr(node, "stuck", stuck)
        async with opened(node) as (url, _), Caller(url) as caller:
            assert await asyncio.gather(*(health(caller) for _ in range(20))) == [(200, "ok", [])] * 20
            assert len(begun) == 1
            goes_on.set()

    asyncio.run(check())


def test_liveness_a_busy_node_is_not_stuck_and_a_slot_that_never_came_back_is() -> None:
    async def check() -> None:
        node = Node(NodeConfig(slots=1, environments=(BARE,)))
        async with opened(node) as (url, app), Caller(url) as caller:
            busy = asyncio.ensure_future(caller.post("/v1/run", {"code": "import time; time.sleep(60)"}))
            await until(lambda: app.queue.running == 1)
            assert await node.stuck() == []
            busy.cancel()
            await until(lambda: app.queue.running == 0)
            ended = asyncio.ensure_future(asyncio.sleep(0))
            await ended
            app.queue.tasks.add(ended)

            async def named() -> bool:
                return await health(caller) == (503, "stuck", ["queue"])

            await until(named)

    asyncio.run(check())

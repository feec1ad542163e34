"""Sessions that go on after their node was drained, killed or restarted, on nodes in processes of their own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager
from functools import wraps
from typing import Any, ParamSpec

import pytest

from cleaner_sandbox import Cell, Commit, SessionLostError, SessionRequest, Tier
from cleaner_sandbox.client import RemoteSession, SandboxClient
from cleaner_sandbox.protocol.results import RunStatus
from tests.conftest import needs
from tests.service.test_serve import children, serving
from tests.serving import until

P = ParamSpec("P")
pytestmark = pytest.mark.timeout(300)
OPTIONS = ("--min-tier", "T2", "--drain-seconds", "1")


def asynchronous(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test that is a coroutine; nodes in processes of their own may take minutes to start."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


@asynccontextmanager
async def nodes(number: int) -> AsyncIterator[tuple[SandboxClient, dict[str, subprocess.Popen[str]]]]:
    """A client of so many nodes, and their processes by their addresses."""
    needs(Tier.T2)
    with ExitStack() as stack:
        processes: dict[str, subprocess.Popen[str]] = {}
        for _ in range(number):
            process, url, _ = await asyncio.to_thread(stack.enter_context, serving(*OPTIONS))
            processes[url] = process
        async with SandboxClient(list(processes), patience=20) as sandbox:
            yield sandbox, processes


async def filled(sandbox: SandboxClient) -> RemoteSession:
    """A session at its fourth state, with one more that was rolled back, one that failed and one that isn't kept."""
    session = await sandbox.open_session(SessionRequest(files={"given": b"5"}))
    await session.run("import random; x = int(open('given').read()); print(random.random())")
    await session.run(Cell("y = 1\n1 / 0", commit=Commit.ALWAYS))
    await session.run("x = 100")
    await session.rollback()
    await session.put("put", b"7")
    assert not (await session.run("x = 0\n1 / 0")).committed
    assert not (await session.run(Cell("x = 1", commit=Commit.NEVER))).committed
    assert session.checkpoint == 4
    return session


async def is_whole(session: RemoteSession) -> None:
    """It has the state that `filled` left, and goes on."""
    outcome = await session.run("z = x + y + int(open('put').read()); print(z)")
    assert (outcome.result.output, outcome.committed, outcome.checkpoint) == ("13\n", True, 5)
    assert await session.fetch("given") == b"5"
    assert await session.rollback() == 4
    assert (await session.run("print('z' in globals())")).result.output == "False\n"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
@asynchronous
async def test_a_session_goes_on_elsewhere_when_its_node_is_drained_or_killed(how: signal.Signals) -> None:
    async with nodes(2) as (sandbox, processes):
        session = await filled(sandbox)
        before, name = session.node, session.id
        processes[before].send_signal(how)

        async def moved() -> bool:  # whether the old node still answers or not, no call is lost
            assert (await session.run(Cell("print(x)", commit=Commit.NEVER))).result.output == "5\n"
            return session.node != before

        await until(moved, 120)
        await is_whole(session)
        assert session.node in processes
        assert (session.node, session.id) != (before, name)
        await session.close()
        with pytest.raises(SessionLostError):
            await session.run("x")
        assert await sandbox.list_sessions() == []


@asynchronous
async def test_a_session_goes_on_when_its_node_is_killed_in_the_middle_of_a_cell_or_restarts() -> None:
    async with nodes(1) as (sandbox, processes):
        ((url, process),) = processes.items()
        session = await filled(sandbox)
        (server,) = children(process.pid)
        cell = asyncio.create_task(session.run("import time; time.sleep(1); x += 1; print(x)"))

        async def running() -> bool:
            return any(each.busy for each in await sandbox.list_sessions())

        await until(running)
        os.kill(server, signal.SIGKILL)  # its keeper starts another one on the same address
        outcome = await cell
        assert (outcome.result.status, outcome.result.output, outcome.checkpoint) == (RunStatus.OK, "6\n", 5)
        assert session.node == url
        await session.rollback()
        await is_whole(session)


@asynchronous
async def test_a_session_whose_cells_show_something_else_is_lost_with_one_clear_error() -> None:
    async with nodes(2) as (sandbox, processes):
        session = await sandbox.open_session()
        await session.run("x = 1")
        await session.run("import time; print(time.time_ns())")
        processes[session.node].kill()

        async def never() -> bool:
            await session.run(Cell("print(x)", commit=Commit.NEVER))
            return False

        with pytest.raises(SessionLostError, match="cell 2 of 2 did not show the same when it ran again"):
            await until(never, 120)
        with pytest.raises(SessionLostError):
            await session.run("print(x)")
        ((left, _),) = [each for each in processes.items() if each[0] != session.node]
        assert [each.node for each in await sandbox.list_sessions() if each.node == left] == []

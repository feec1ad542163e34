"""The sessions of a node together: their number, their memory, and what is said when one can't be opened."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace

import pytest

from cleaner_rl.sandbox import BARE, Cell, Limits, Node, NodeConfig, Session, SessionLostError, SessionRequest, Tier
from cleaner_rl.sandbox.node.store import NoRoomError
from cleaner_rl.tools import Status
from tests.sandbox.conftest import needs
from tests.sandbox.serving import asynchronous, until

REQUEST = SessionRequest(preload="bare")


@pytest.fixture(scope="module", autouse=True)
def sessions() -> None:
    needs(Tier.T2)


@asynchronous
async def test_sessions_that_are_opened_at_once_are_no_more_than_the_node_may_have() -> None:
    async with Node(NodeConfig(slots=1, preload=(BARE,), sessions=3)) as node:
        opened = await asyncio.gather(*(node.open_session(REQUEST) for _ in range(12)), return_exceptions=True)
        assert node.status.sessions == 3
        assert [isinstance(each, Session) for each in opened].count(True) == 3
        assert sum(isinstance(each, SessionLostError) for each in opened) == 9


@asynchronous
async def test_a_session_that_was_used_just_now_makes_no_room_for_another_one() -> None:
    config = NodeConfig(slots=1, preload=(BARE,), sessions=2)
    async with Node(config) as node:
        first, second = [await node.open_session(REQUEST) for _ in range(2)]
        for _ in range(3):
            with pytest.raises(NoRoomError, match="in use"):
                await node.open_session(REQUEST)
        assert (first.lost, second.lost) == ("", "")
        first.used -= config.session_grace
        third = await node.open_session(REQUEST)
        assert first.lost == "it made room for another one"
        assert (second.lost, third.lost) == ("", "")


@asynchronous
async def test_no_session_is_opened_into_memory_that_the_others_need() -> None:
    async with Node(NodeConfig(slots=1, preload=(BARE,), session_memory_mb=100)) as node:
        session = await node.open_session(REQUEST)
        await session.run("x = b'1' * (88 << 20)")
        with pytest.raises(NoRoomError):
            await node.open_session(REQUEST)
        assert (await session.run("del x")).committed
        await session.rollback(0)
        await node.open_session(REQUEST)


@asynchronous
async def test_a_session_whose_slot_dies_at_its_start_is_lost_and_its_place_is_free_again() -> None:
    async with Node(NodeConfig(slots=1, preload=(BARE,), sessions=1)) as node:
        zygote = node.pids["bare"][0]
        os.kill(zygote, signal.SIGKILL)
        os.waitid(os.P_PID, zygote, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222 - before the node hears of it
        with pytest.raises(SessionLostError, match="died"):
            await node.open_session(REQUEST)
        await until(lambda: node.pids["bare"][0] not in (zygote, -1))
        session = await node.open_session(REQUEST)
        assert (await session.run("1")).result.output == "1\n"


@asynchronous
async def test_what_a_session_holds_is_the_memory_of_all_its_states() -> None:
    async with Node(NodeConfig(slots=1, preload=(BARE,))) as node:
        session = await node.open_session(REQUEST)
        assert session.held_bytes < 40 << 20
        for number in range(4):
            await session.run(f"x = b'{number}' * (50 << 20)")
        assert 200 << 20 < session.held_bytes < 260 << 20
        await session.run("del x")
        assert 200 << 20 < session.held_bytes < 260 << 20, "the states before still have it"
        await session.rollback(0)
        assert session.held_bytes < 40 << 20


@asynchronous
async def test_what_came_with_a_sessions_cells_counts_as_long_as_they_are_kept() -> None:
    async with Node(NodeConfig(slots=1, preload=(BARE,))) as node:
        session = await node.open_session(REQUEST)
        before = session.held_bytes
        for _ in range(4):
            await session.run(Cell("1", stdin="x" * (20 << 20)))
        assert session.held_bytes - before > 80 << 20
        await session.run(Cell("1 / 0", stdin="x" * (20 << 20)))
        assert session.held_bytes - before < 120 << 20
        await session.rollback(0)
        assert session.held_bytes - before < 20 << 20


@asynchronous
async def test_what_a_cells_own_process_holds_counts_for_its_session() -> None:
    fork = "import os, time\nif os.fork() == 0:\n    y = b'1' * (100 << 20)\n    open('made', 'w')\n    time.sleep(60)"
    made = "while not os.path.exists('made'): time.sleep(0.01)"
    async with Node(NodeConfig(slots=1, preload=(BARE,))) as node:
        session = await node.open_session(REQUEST)
        assert (await session.run(fork)).not_checkpointable == ("process",)
        assert (await session.run(made)).result.status is Status.OK
        assert 100 << 20 < session.held_bytes < 150 << 20


@asynchronous
async def test_sessions_keep_to_their_memory_after_each_cell_and_those_idle_for_longest_make_room() -> None:
    fill = "x = b'{}' * (50 << 20)"
    async with Node(NodeConfig(slots=1, preload=(BARE,), session_memory_mb=150)) as node:
        idle, busy = [await node.open_session(REQUEST) for _ in range(2)]
        await idle.run(fill.format(0))
        await busy.run(fill.format(1))
        assert not idle.lost
        assert (await busy.run(fill.format(2))).committed
        with pytest.raises(SessionLostError, match="memory"):
            await idle.run("1")
        # One that holds too much all by itself has its answer; then it goes, too.
        assert (await busy.run(fill.format(3))).committed
        with pytest.raises(SessionLostError, match="memory"):
            await busy.run("1")


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"big": bytes(20 << 20)}, "disk limit"),
        ({str(number): b"x" for number in range(3000)}, "No space left"),
        ({"../x": b""}, "working folder"),
    ],
)
@asynchronous
async def test_files_that_a_session_can_not_have_are_refused_and_nothing_stays_open(
    files: dict[str, bytes], problem: str
) -> None:
    async with Node(NodeConfig(slots=1, preload=(BARE,), limits=Limits(disk_mb=8))) as node:
        with pytest.raises(ValueError, match=problem):
            await node.open_session(replace(REQUEST, files=files))
        assert node.status.sessions == 0

"""The sessions of a node together: their number, their memory, and what is said when one can't be opened."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
from dataclasses import replace
from typing import Any

import pytest

from cleaner_sandbox import (
    BARE,
    Cell,
    Language,
    Limits,
    Node,
    NodeConfig,
    RollbackDeclinedError,
    Session,
    SessionLostError,
    SessionRequest,
    Tier,
)
from cleaner_sandbox.node.store import LEAST_OPEN_FILES, STARTING, NoRoomError, SessionStore
from cleaner_sandbox.protocol.results import RunStatus
from tests.conftest import needs
from tests.serving import Caller, asynchronous, opened, until

REQUEST = SessionRequest(environment="bare")


@pytest.fixture(scope="module", autouse=True)
def sessions() -> None:
    needs(Tier.T2)


@asynchronous
async def test_sessions_that_are_opened_at_once_are_no_more_than_the_node_may_have() -> None:
    async with Node(NodeConfig(slots=1, environments=(BARE,), sessions=3)) as node:
        asked = await asyncio.gather(*(node.open_session(REQUEST) for _ in range(12)), return_exceptions=True)
        assert node.status.sessions == 3
        assert [isinstance(each, Session) for each in asked].count(True) == 3
        assert sum(isinstance(each, SessionLostError) for each in asked) == 9


@asynchronous
async def test_a_session_that_was_used_just_now_makes_no_room_for_another_one() -> None:
    config = NodeConfig(slots=1, environments=(BARE,), sessions=2)
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
    async with Node(NodeConfig(slots=1, environments=(BARE,), session_memory_mb=100)) as node:
        session = await node.open_session(REQUEST)
        await session.run("x = b'1' * (88 << 20)")
        with pytest.raises(NoRoomError):
            await node.open_session(REQUEST)
        assert (await session.run("del x")).committed
        await session.rollback(0)
        await node.open_session(REQUEST)


@asynchronous
async def test_a_session_whose_slot_dies_at_its_start_is_lost_and_its_place_is_free_again() -> None:
    async with Node(NodeConfig(slots=1, environments=(BARE,), sessions=1)) as node:
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
    async with Node(NodeConfig(slots=1, environments=(BARE,))) as node:
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
    async with Node(NodeConfig(slots=1, environments=(BARE,))) as node:
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
async def test_finding_cells_are_counted_as_the_bytes_that_they_take() -> None:
    async with Node(NodeConfig(slots=1, environments=(BARE,))) as node:
        session = await node.open_session(REQUEST)
        before = session.held_bytes
        await session.run(Cell("1", stdin="x" * (5 << 20) + "\N{GRINNING FACE}"))
        assert session.held_bytes - before > 20 << 20, "one wide character makes all of them four bytes wide"


@asynchronous
async def test_finding_a_session_that_ended_holds_no_cells_and_an_idle_one_no_request() -> None:
    async with Node(NodeConfig(slots=1, environments=(BARE,))) as node:
        session = await node.open_session(REQUEST)
        await session.run(Cell("1", files={"a": bytes(5 << 20)}))
        assert session._link._unsent.obj == b""
        await session.close()
        assert session._committed == []


@asynchronous
async def test_finding_what_cells_printed_and_were_called_is_not_held() -> None:
    async with Node(NodeConfig(slots=1, environments=(BARE,))) as node:
        session = await node.open_session(replace(REQUEST, keep_chars=1 << 20))
        outcome = await session.run(Cell("print('x' * 1_000_000)", request_id="y" * 1_000_000))
        assert len(outcome.result.output) == 1_000_001
        assert len(pickle.dumps(session._committed)) < 1_000


@asynchronous
async def test_what_a_cells_own_process_holds_counts_for_its_session() -> None:
    fork = "import os, time\nif os.fork() == 0:\n    y = b'1' * (100 << 20)\n    open('made', 'w')\n    time.sleep(60)"
    made = "while not os.path.exists('made'): time.sleep(0.01)"
    async with Node(NodeConfig(slots=1, environments=(BARE,))) as node:
        session = await node.open_session(REQUEST)
        assert (await session.run(fork)).not_checkpointable == ("process",)
        assert (await session.run(made)).result.status is RunStatus.OK
        assert 100 << 20 < session.held_bytes < 150 << 20


FILL = "x = b'{}' * ({} << 20)"


@asynchronous
async def test_sessions_keep_to_their_memory_after_each_cell_and_those_idle_for_longest_make_room() -> None:
    config = NodeConfig(slots=1, environments=(BARE,), session_memory_mb=200)
    async with Node(config) as node:
        idle, busy = [await node.open_session(REQUEST) for _ in range(2)]
        await idle.run(FILL.format(0, 110))
        await busy.run(FILL.format(1, 30))
        assert (idle.lost, busy.lost) == ("", "")
        idle.used -= config.session_grace
        assert (await busy.run(FILL.format(2, 160))).committed
        assert not busy.lost
        with pytest.raises(SessionLostError, match="memory"):
            await idle.run("1")


@asynchronous
async def test_finding_a_cell_that_takes_the_memory_of_sessions_in_use_fails_and_no_session_is_lost() -> None:
    async with Node(NodeConfig(slots=1, environments=(BARE,), session_memory_mb=200)) as node:
        small, large = [await node.open_session(REQUEST) for _ in range(2)]
        await small.run(FILL.format(0, 60))
        await large.run("y = 1")
        outcome = await large.run(FILL.format(1, 160))
        assert (outcome.result.status, outcome.committed, outcome.unrepeatable) == (RunStatus.MEMORY, False, False)
        assert (await small.run("len(x) >> 20")).result.output == "60\n"
        failed = await large.run("1 / 0")
        assert (failed.result.status, large.lost) == (RunStatus.ERROR, ""), "its next failure is no fault"
        assert (await large.run("y")).result.output == "1\n"


@asynchronous
async def test_finding_hoarding_sessions_of_one_owner_can_give_back_and_go_on() -> None:
    async with Node(NodeConfig(slots=1, environments=(BARE,), session_memory_mb=300)) as node:
        sessions = [await node.open_session(REQUEST) for _ in range(3)]
        statuses = [(await session.run(FILL.format(0, 130))).result.status for session in sessions]
        assert statuses == [RunStatus.OK, RunStatus.OK, RunStatus.MEMORY]
        assert (await sessions[0].run("x = None")).result.status is RunStatus.OK
        assert (await sessions[2].run(FILL.format(0, 130))).result.status is RunStatus.OK
        assert [session.lost for session in sessions] == [""] * 3


@asynchronous
async def test_finding_a_session_drops_its_own_kept_states_before_any_is_lost() -> None:
    async with Node(NodeConfig(slots=1, environments=(BARE,), session_memory_mb=200)) as node:
        session = await node.open_session(REQUEST)
        for number in range(6):
            assert (await session.run(FILL.format(number, 60))).committed
            assert session.held_bytes < 200 << 20
        assert await session.rollback(2) == 2, "made again by its cells"
        assert (await session.run("x[:1]")).result.output == "b'1'\n"


@asynchronous
async def test_finding_states_of_one_owner_end_no_session_of_another() -> None:
    config = NodeConfig(slots=1, environments=(BARE,), session_memory_mb=200, session_grace=0.0)
    async with Node(config) as node:
        bob = await node.open_session(REQUEST, "bob")
        await bob.run("x = 42")
        alice = [await node.open_session(REQUEST, "alice") for _ in range(2)]
        for number in range(4):
            for session in alice:
                if not session.lost:
                    await session.run(FILL.format(number, 110))
        assert any(session.lost for session in alice), "the two don't fit"
        assert (await bob.run("x")).result.output == "42\n"
        # What is below its share is given to it at the cost of the others.
        assert (await bob.run(FILL.format(1, 90))).committed
        await until(lambda: all(session.lost for session in alice))
        assert (await bob.run("x[:1]")).result.output == "b'1'\n"


@asynchronous
async def test_finding_who_holds_little_does_not_wait_while_others_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shed, never = Session.shed, asyncio.Event()

    async def endless(session: Session, most: int) -> None:
        await never.wait()
        await shed(session, most)

    monkeypatch.setattr(Session, "shed", endless)
    config = NodeConfig(slots=2, environments=(BARE,), session_memory_mb=80)
    async with Node(config) as node:
        hoarder = await node.open_session(REQUEST, "hoarder")
        await hoarder.run(Cell("x = bytearray(b'x') * (30 << 20)"))
        work = asyncio.ensure_future(hoarder.run(Cell("y = bytearray(b'x') * (60 << 20)")))
        await until(lambda: hoarder.held_bytes > 80 << 20)
        neighbour = await node.open_session(REQUEST, "neighbour")
        assert (await neighbour.run(Cell("print(1)"))).result.output == "1\n"
        never.set()
        await work


@asynchronous
async def test_finding_few_sessions_of_one_owner_are_started_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    start, now, most = SessionStore._start, [0], [0]

    async def counted(*arguments: Any) -> Session:
        now[0] += 1
        most[0] = max(most[0], now[0])
        try:
            return await start(*arguments)
        finally:
            now[0] -= 1

    monkeypatch.setattr(SessionStore, "_start", counted)
    async with Node(NodeConfig(slots=1, environments=(BARE,), sessions=8)) as node:
        await asyncio.gather(*(node.open_session(REQUEST) for _ in range(6)))
    assert most == [STARTING]


@asynchronous
async def test_finding_the_places_of_one_owner_are_not_taken_by_another() -> None:
    config = NodeConfig(slots=1, environments=(BARE,), sessions=4, session_grace=0.0)
    async with Node(config) as node:
        bob = [await node.open_session(REQUEST, "bob") for _ in range(2)]
        alice = [await node.open_session(REQUEST, "alice") for _ in range(4)]
        assert [session.lost for session in bob] == ["", ""]
        assert [bool(session.lost) for session in alice] == [True, True, False, False]
        # Who comes third takes a place of the first that has more than its share.
        assert not (await node.open_session(REQUEST, "carol")).lost
        assert sum(not session.lost for session in bob + alice) == 3


@asynchronous
async def test_finding_an_owner_without_a_session_finds_a_place_though_another_uses_all_that_it_can_get() -> None:
    async with Node(NodeConfig(slots=1, environments=(BARE,), sessions=4)) as node:
        alice = [await node.open_session(REQUEST, "alice", owners=2) for _ in range(3)]
        with pytest.raises(NoRoomError):
            await node.open_session(REQUEST, "alice", owners=2)
        bob = await node.open_session(REQUEST, "bob", owners=2)
        assert [session.lost for session in (*alice, bob)] == [""] * 4
        with pytest.raises(NoRoomError):
            await node.open_session(REQUEST, "bob", owners=2)
        alice[0].used -= node.config.session_grace
        assert not (await node.open_session(REQUEST, "alice", owners=2)).lost, "its own idle one made room"


@asynchronous
async def test_finding_a_state_is_rebuilt_for_no_longer_than_a_call_may_take() -> None:
    config = NodeConfig(slots=1, environments=(BARE,), checkpoints=1, maxima=Limits(wall_seconds=0.5))
    async with Node(config) as node:
        session = await node.open_session(REQUEST)
        for _ in range(6):
            assert (await session.run("import time; time.sleep(0.2)")).committed
        with pytest.raises(RollbackDeclinedError, match="longer than a call may"):
            await session.rollback(4)
        assert session.rebuild_seconds < 1.0


@asynchronous
async def test_finding_a_cell_that_leaves_more_than_a_session_may_hold_fails_and_is_undone() -> None:
    async with Node(NodeConfig(slots=1, environments=(BARE,), session_memory_mb=150)) as node:
        session = await node.open_session(REQUEST)
        await session.run("x = 1")
        outcome = await session.run("print('so far')\n" + FILL.format(0, 200))
        assert (outcome.result.status, outcome.committed, outcome.checkpoint) == (RunStatus.MEMORY, False, 1)
        assert (outcome.result.output, outcome.unrepeatable) == ("so far\n", False)
        assert (await session.run("x")).result.output == "1\n"
        await session.run("import time\nprint(time.time_ns())")
        lost = await session.run(FILL.format(0, 200))
        assert (lost.result.status, lost.unrepeatable) == (RunStatus.MEMORY, True)


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
    async with Node(NodeConfig(slots=1, environments=(BARE,), limits=Limits(disk_mb=8))) as node:
        with pytest.raises(ValueError, match=problem):
            await node.open_session(replace(REQUEST, files=files))
        assert node.status.sessions == 0


@asynchronous
async def test_finding_a_limit_on_open_files_that_no_session_can_keep_to_is_refused() -> None:
    async with opened(Node(NodeConfig(slots=1, environments=(BARE,)))) as (url, app), Caller(url) as caller:
        least = LEAST_OPEN_FILES[Language.PYTHON]
        for most, status in ((1, 400), (least - 1, 400), (least, 201)):
            asked = {"environment": "bare", "limits": {"open_files": most}, "files": {"a": "YQ=="}}
            found, answer = await caller.post("/v1/sessions", asked)
            assert found == status
            assert status == 201 or "open_files" in answer["message"]
        session = app.node.session(answer["session"])
        cells = ("open('b', 'w').write('x')", "1 / 0", "print(open('b').read())")
        assert [(await session.run(cell)).result.status for cell in cells] == [
            RunStatus.OK,
            RunStatus.ERROR,
            RunStatus.OK,
        ]


@asynchronous
async def test_finding_a_hoarding_cell_ends_no_small_session() -> None:
    config = NodeConfig(slots=1, environments=(BARE,), sessions=4, session_memory_mb=260, session_grace=0.0)
    async with Node(config) as node:
        small, *others = [await node.open_session(REQUEST) for _ in range(4)]
        await small.run("x = 1")
        for session in others:
            await session.run("x = b'x' * (100 << 20)")
        assert any(session.lost for session in others)
        assert (await small.run("x")).result.output == "1\n"

"""Sessions: order, going back, loss, and what is left when a rollout is cancelled. All on real nodes."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cleaner_rl.purify import OnUnrepaired, PurifyConfig, ReplayVerdict, replay
from cleaner_rl.rollout import Purifier, RolloutBudget, SessionToolEnv, rollout
from cleaner_rl.rollout.grading import calls_of
from cleaner_rl.tasks import load_prompt
from cleaner_rl.tools import Status, ToolCall
from cleaner_rl.trajectory import RepairKind, StopReason, TokenSpan, Trajectory
from cleaner_sandbox import BARE, Node, NodeConfig, Session, SessionLostError, SessionRequest, Tier
from cleaner_sandbox.client import SandboxClient
from tests.nodes import asynchronous, needs, opened, until
from tests.rollout.scripted import KEY, SEEDS, TASK, ScriptedEngine, call, node, tasks_left, token_model

BARE_SESSION = SessionRequest(environment="bare")
SAAR = Purifier()


@pytest.fixture(autouse=True)
def sessions_work_here() -> None:
    needs(Tier.T2)


async def rolled(engine: ScriptedEngine, sandbox: Any, **options: Any) -> Trajectory[TokenSpan]:
    tool_env = SessionToolEnv(sandbox, BARE_SESSION)
    prompt = load_prompt("session")
    return await rollout(TASK, KEY, prompt=prompt, model=token_model(engine), tool_env=tool_env, seeds=SEEDS, **options)


def cell(code: str) -> ToolCall:
    return ToolCall("python", {"code": code}, code, 0, 0)


async def assert_replays(trajectory: Trajectory[TokenSpan], sandbox: Node) -> None:
    tool_env = SessionToolEnv(sandbox, BARE_SESSION)
    found = await replay(trajectory, lambda: calls_of(tool_env, KEY))
    assert found.verdict is ReplayVerdict.SAME, found.difference


@asynchronous
async def test_calls_share_a_session_in_their_order_and_it_ends_with_the_rollout() -> None:
    engine = ScriptedEngine([call("x = 1") + call("x += 1", "") + call("print(x)", ""), call("x"), "C."])
    async with node() as sandbox:
        trajectory = await rolled(engine, sandbox)
        assert [result.output for result in trajectory.turns[0].results] == ["", "", "2\n"]
        assert trajectory.turns[1].results[0].output == "2\n"
        assert sandbox.status.sessions == 0


@asynchronous
async def test_a_repair_runs_from_before_the_first_call_of_the_turn() -> None:
    failed = call("x = 10") + call("x += 1; print(y)", "")
    attempt = call("print(x)") + call("x = 10", "")
    async with node() as sandbox:
        trajectory = await rolled(
            ScriptedEngine([call("x = 0"), failed, attempt, call("x"), "C."]), sandbox, purifier=SAAR
        )
        assert trajectory.stop_reason is StopReason.ANSWERED
        assert trajectory.turns[1].edit is not None
        assert [result.output for result in trajectory.turns[1].results] == ["0\n", ""]
        assert trajectory.turns[2].results[0].output == "10\n"
        await assert_replays(trajectory, sandbox)


@asynchronous
async def test_attempts_that_left_nothing_stay_in_the_history() -> None:
    engine = ScriptedEngine([call("x = 0"), *[call("x += 1; print(y)")] * 4, call("x"), "C."])
    async with node() as sandbox:
        trajectory = await rolled(engine, sandbox, purifier=SAAR)
        assert len(trajectory.turns) == 7
        assert trajectory.turns[5].results[0].output == "0\n"
        await assert_replays(trajectory, sandbox)


@pytest.mark.parametrize("on_unrepaired", [OnUnrepaired.KEEP_ATTEMPTS, OnUnrepaired.KEEP_FIRST])
@asynchronous
async def test_after_a_repair_that_failed_the_session_is_where_the_history_leads(on_unrepaired: OnUnrepaired) -> None:
    """The failure and each attempt half work: what stands in the history must be what the session holds."""
    failed = call("x += 10") + call("print(y)", "")
    attempts = [call(f"x += {number}") + call("print(y)", "") for number in (1, 2, 3)]
    engine = ScriptedEngine([call("x = 0"), failed, *attempts, call("x"), "C."])
    purifier = Purifier(config=PurifyConfig(on_unrepaired=on_unrepaired))
    async with node() as sandbox:
        trajectory = await rolled(engine, sandbox, purifier=purifier)
        assert trajectory.stop_reason is StopReason.ANSWERED
        assert trajectory.turns[-2].results[0].output == "10\n"
        await assert_replays(trajectory, sandbox)


@asynchronous
async def test_attempts_that_would_differ_in_the_history_are_kept_aside() -> None:
    """An attempt printed what it would not print after the failure that would stand before it."""
    failed = call("x += 10") + call("print(y)", "")
    attempt = call("print(x)") + call("print(y)", "")
    engine = ScriptedEngine([call("x = 0"), failed, attempt, attempt, attempt, call("x"), "C."])
    async with node() as sandbox:
        trajectory = await rolled(engine, sandbox, purifier=SAAR)
        assert len(trajectory.turns) == 4
        edit = trajectory.turns[1].edit
        assert edit is not None
        assert edit.kind is RepairKind.NONE
        assert [turn.attempt for turn in edit.original] == [0, 1, 2, 3]
        assert trajectory.turns[2].results[0].output == "10\n"
        await assert_replays(trajectory, sandbox)


@asynchronous
async def test_a_lost_session_is_built_again_from_its_cells() -> None:
    async with node() as sandbox, SessionToolEnv(sandbox, BARE_SESSION).open(KEY) as tool_session:
        await tool_session.run([cell("x = 1"), cell("raise ValueError"), cell("x += 1; print(x)")])
        await _lose(tool_session)
        (result,) = await tool_session.run([cell("x")])
        assert result.output == "2\n"
        await tool_session.run([cell("x = 50")])
        await _lose(tool_session)
        await tool_session.rollback()
        (result,) = await tool_session.run([cell("x")])
        assert result.output == "2\n"


@asynchronous
async def test_a_lost_session_that_can_not_be_had_again_is_a_fault() -> None:
    async with node() as sandbox, SessionToolEnv(sandbox, BARE_SESSION).open(KEY) as tool_session:
        await tool_session.run([cell("import time; print(time.time_ns())")])
        await _lose(tool_session)
        (result,) = await tool_session.run([cell("1")])
        assert result.status is Status.FAULT


UNREPEATABLE = "import os, time; pipe = os.pipe(); print(time.time_ns())"
"""Its state can't be kept, for it has a pipe, and not be made again."""


@pytest.mark.parametrize("served", [False, True])
@asynchronous
async def test_a_state_that_programs_made_unrepeatable_is_their_failure_and_no_fault(served: bool) -> None:
    async with opened(Node(_config())) as (url, app), SandboxClient(url) as client:
        tool_env = SessionToolEnv(client if served else app.node, BARE_SESSION)
        async with tool_env.open(KEY) as tool_session:
            await tool_session.run([cell(UNREPEATABLE)])
            (failed,) = await tool_session.run([cell("1 / 0")])
            assert failed.status is Status.ERROR
            for _ in range(2):
                (result,) = await tool_session.run([cell("print('answer')")])
                assert result.failed
                assert "don't give the same" in result.explanation
        async with tool_env.open(KEY) as tool_session:
            await tool_session.run([cell(UNREPEATABLE), cell("1 / 0"), cell("1")])
            await tool_session.rollback()
            (result,) = await tool_session.run([cell("print('answer')")])
            assert result.output == "answer\n", "the state before all of them can be had"
        async with tool_env.open(KEY) as tool_session:
            await tool_session.run([cell(UNREPEATABLE)])
            await tool_session.run([cell("x = 1")])
            await tool_session.rollback()
            (result,) = await tool_session.run([cell("print('answer')")])
            assert result.failed
        await until(lambda: app.node.status.sessions == 0)


@asynchronous
async def test_finding_a_state_that_is_not_kept_any_more_and_not_made_again_is_no_fault() -> None:
    async with node() as sandbox, SessionToolEnv(sandbox, BARE_SESSION).open(KEY) as tool_session:
        await tool_session.run([cell("import time; print(time.time_ns())")])
        await tool_session.run([cell("x = 1")] * 20)
        await tool_session.rollback()
        (result,) = await tool_session.run([cell("1")])
        assert result.failed


@asynchronous
async def test_a_turn_of_more_calls_than_states_are_kept_is_undone_too() -> None:
    async with node() as sandbox, SessionToolEnv(sandbox, BARE_SESSION).open(KEY) as tool_session:
        await tool_session.run([cell("x = 0")])
        await tool_session.run([cell("x += 1")] * 20)
        await tool_session.rollback()
        (result,) = await tool_session.run([cell("x")])
        assert result.output == "0\n"


@pytest.mark.parametrize("served", [False, True])
@asynchronous
async def test_finding_a_session_that_begins_with_files_keeps_them_whatever_is_undone(served: bool) -> None:
    async with opened(Node(_config())) as (url, app), SandboxClient(url) as client:
        tool_env = SessionToolEnv(client if served else app.node, replace(BARE_SESSION, files={"given": b"1"}))
        async with tool_env.open(KEY) as tool_session:
            read = cell("open('given').read()")
            failed, found = await tool_session.run([cell("1 / 0"), read])
            assert (failed.status, found.output) == (Status.ERROR, "'1'\n")
            await tool_session.rollback()
            assert (await tool_session.run([read]))[0].output == "'1'\n"


@asynchronous
async def test_a_session_that_loses_the_files_it_began_with_gets_them_again() -> None:
    with_file = replace(BARE_SESSION, files={"given": b"1"})
    async with node() as sandbox, SessionToolEnv(sandbox, with_file).open(KEY) as tool_session:
        await tool_session.run([cell("1 / 0")])
        _kill_interpreters(tool_session)
        lost, found = await tool_session.run([cell("1"), cell("open('given').read()")])
        assert lost.failed, "there was no interpreter"
        assert found.output == "'1'\n"


@asynchronous
async def test_a_cell_that_is_undone_later_is_not_kept() -> None:
    breaks = "import marshal, os; marshal.loads = lambda *a: 1 / 0; os.fork = None"
    async with node() as sandbox, SessionToolEnv(sandbox, BARE_SESSION).open(KEY) as tool_session:
        await tool_session.run([cell("x = 1"), cell(breaks)])
        (lost,) = await tool_session.run([cell("print(x)")])
        assert lost.failed, "there was no interpreter"
        first, _ = await tool_session.run([cell("z = 3; print(z)"), cell("1 / 0")])
        assert first.output == "3\n"
        await tool_session.rollback()
        (result,) = await tool_session.run([cell("print(x, 'z' in globals())")])
        assert result.output == "1 False\n"


@asynchronous
async def test_finding_a_program_that_fills_the_memory_of_its_session_causes_no_fault() -> None:
    small = Node(NodeConfig(slots=2, environments=(BARE,), session_memory_mb=200))
    async with small as sandbox, SessionToolEnv(sandbox, BARE_SESSION).open(KEY) as tool_session:
        hoard = [cell(f"x = b'{number}' * (60 << 20)") for number in range(6)]
        results = await tool_session.run([*hoard, cell("x = b'9' * (300 << 20)"), cell("x[:1]")])
        assert [result.status for result in results] == [*6 * [Status.OK], Status.MEMORY, Status.OK]
        assert results[-1].output == "b'5'\n"


@asynchronous
async def test_a_sandbox_that_is_away_is_waited_for_once_a_turn() -> None:
    class Away:
        asked = 0

        async def open_session(self, request: SessionRequest | None = None) -> Session:
            self.asked += 1
            raise SessionLostError("no sandbox node could be reached")

    away: Any = Away()
    async with SessionToolEnv(away, BARE_SESSION).open(KEY) as tool_session:
        results = await tool_session.run([cell("1")] * 3)
    assert [result.status for result in results] == [Status.FAULT] * 3
    assert "sandbox node" in results[0].explanation
    assert away.asked == 1


def _kill_interpreters(tool_session: Any) -> None:
    supervisor = tool_session._session.pid
    for state in Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split():
        os.kill(int(state), signal.SIGKILL)


async def _lose(tool_session: Any) -> None:
    session = tool_session._session
    assert isinstance(session, Session)
    await session.close()


@asynchronous
async def test_s22_a_cancelled_rollout_leaves_no_session_and_no_task() -> None:
    async with opened(Node(_config())) as (url, app), SandboxClient(url) as client:
        held = app.node
        warm = await client.open_session(BARE_SESSION)
        await warm.close()
        before = tasks_left()
        # In the middle of a cell.
        task = asyncio.create_task(rolled(ScriptedEngine([call("import time; time.sleep(60)")]), client))
        await until(lambda: held.status.sessions == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: held.status.sessions == 0)
        # While the session is being opened.
        task = asyncio.create_task(rolled(ScriptedEngine([call("1")]), client))
        await until(lambda: len(tasks_left()) > len(before) + 1 or task.done())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: held.status.sessions == 0)
        # By its own time limit.
        late = await rolled(ScriptedEngine([call("while True: pass")]), client, budget=RolloutBudget(seconds=1.0))
        assert late.stop_reason is StopReason.TIME_LIMIT
        await until(lambda: held.status.sessions == 0)
        await until(lambda: tasks_left() <= before)


def _config() -> Any:
    return NodeConfig(slots=2, environments=(BARE,))

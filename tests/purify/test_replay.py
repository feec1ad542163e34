from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from cleaner_rl.purify import (
    RepairConfig,
    ReplayFaultError,
    ReplayVerdict,
    hindsight,
    replay,
    verify_by_replay,
)
from cleaner_rl.purify.replay import ExecuteCall
from cleaner_rl.tools import Status, ToolCall, ToolResult
from cleaner_rl.trajectory import TokenSpan, Turn
from tests.builders import FAULT, answered, drafted, error, observed, trajectory, written


class Interpreter:
    """A real, if tiny, stateful tool: runs cells in this process, one namespace for each fresh environment."""

    def __init__(self) -> None:
        self.opened = self.closed = 0

    @asynccontextmanager
    async def fresh(self) -> AsyncIterator[ExecuteCall]:
        self.opened += 1
        namespace: dict[str, object] = {"opened": self.opened}

        async def execute(call: ToolCall) -> ToolResult:
            printed: list[str] = []
            namespace["print"] = lambda value: printed.append(f"{value}\n")
            try:
                exec(call.code, namespace)  # the tests' own programs
            except Exception as caught:
                return replace(error(type(caught).__name__, str(caught)), output="".join(printed))
            return ToolResult(Status.OK, "".join(printed), seconds=self.opened)

        try:
            yield execute
        finally:
            self.closed += 1


async def record(*programs: str) -> tuple[Turn[TokenSpan], ...]:
    turns = []
    async with Interpreter().fresh() as execute:
        for program in programs:
            turn = drafted(written(program))
            turns.append(observed(turn, *[call.refusal or await execute(call) for call in turn.calls]))
    return tuple(turns)


def test_the_same_calls_give_the_same_results() -> None:
    rollout = trajectory(*asyncio.run(record("x = 2", "print(x)", "print(y)")), answered())
    tool = Interpreter()
    found = asyncio.run(replay(rollout, tool.fresh))
    assert (found.verdict, found.difference) == (ReplayVerdict.SAME, None)
    assert (tool.opened, tool.closed) == (1, 1)


def test_a_result_tampered_with_is_found_where_it_is() -> None:
    turns = list(asyncio.run(record("x = 2", "print(x)", "print(x + 1)")))
    lie = replace(turns[1].results[0], output="3\n")
    turns[1] = replace(turns[1], results=(lie,))
    tool = Interpreter()
    found = asyncio.run(replay(trajectory(*turns), tool.fresh))
    assert found.verdict is ReplayVerdict.DIFFERENT
    assert found.difference is not None
    assert (found.difference.turn, found.difference.call) == (1, 0)
    assert found.difference.recorded.output == "3\n"
    assert found.difference.replayed.output == "2\n"
    assert (tool.opened, tool.closed) == (2, 2)


def test_what_two_replays_disagree_on_is_nondeterministic() -> None:
    turns = asyncio.run(record("print(opened + 10)"))
    tool = Interpreter()
    tool.opened = 5
    assert asyncio.run(replay(trajectory(*turns), tool.fresh)).verdict is ReplayVerdict.NONDETERMINISTIC


def test_no_text_is_normalised() -> None:
    turns = asyncio.run(record("print('a')"))
    spaced = replace(turns[0], results=(replace(turns[0].results[0], output="a \n"),))
    assert asyncio.run(replay(trajectory(spaced), Interpreter().fresh)).verdict is ReplayVerdict.DIFFERENT


def test_a_malformed_call_is_not_run_and_a_call_without_result_is_not_replayed() -> None:
    broken = drafted("x\n```python\nprint(1)")
    refusal = broken.calls[0].refusal
    assert refusal is not None
    rollout = trajectory(observed(broken, refusal), drafted(written("raise SystemError")))
    assert asyncio.run(replay(rollout, Interpreter().fresh)).verdict is ReplayVerdict.SAME


def test_s2_a_fault_during_a_replay_says_nothing() -> None:
    @asynccontextmanager
    async def down() -> AsyncIterator[ExecuteCall]:
        async def execute(call: ToolCall) -> ToolResult:
            return FAULT

        yield execute

    with pytest.raises(ReplayFaultError, match="no node answered"):
        asyncio.run(replay(trajectory(*asyncio.run(record("print(1)"))), down))


def test_hindsight_on_a_session_is_proven_or_undone() -> None:
    independent = trajectory(
        *asyncio.run(record("print(y)", "y = 1\nprint(y)", "print(y)", "print(z)", "z = 5\nprint(z)"))
    )
    clean = hindsight(independent, RepairConfig()).trajectory
    assert len(clean.edits) == 2
    proof = asyncio.run(verify_by_replay(clean, Interpreter().fresh))
    assert proof.replay.verdict is ReplayVerdict.SAME
    assert proof.trajectory is clean
    # The failed cell set `y` before it raised, and the correction needs it.
    dependent = trajectory(
        *asyncio.run(record("print(q)", "q = 1\nprint(q)", "y = 1\nprint(z)", "print(y)")), answered()
    )
    collapsed = hindsight(dependent, RepairConfig()).trajectory
    assert len(collapsed.edits) == 2
    disproof = asyncio.run(verify_by_replay(collapsed, Interpreter().fresh))
    assert disproof.replay.verdict is ReplayVerdict.DIFFERENT
    assert disproof.replay.difference is not None
    assert disproof.replay.difference.turn == 1
    assert disproof.trajectory == dependent

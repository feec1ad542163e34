"""A tool that raises, wherever it may, costs its rollout and no other."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from cleaner_rl.rollout import Purifier, rollout
from cleaner_rl.rollout.tool_env import ToolSession
from cleaner_rl.rollout.tool_plugins import GuardedToolEnv
from cleaner_rl.tools import Status, ToolCall, ToolResult
from cleaner_rl.trajectory import Key, StopReason
from tests.nodes import asynchronous
from tests.rollout.scripted import KEY, SEEDS, STATELESS, TASK, ScriptedEngine, call, token_model


class Breaking:
    """A tool that raises in one of its methods, and whose calls fail."""

    stateful, limits = True, None

    def __init__(self, where: str) -> None:
        self.where = where
        self.closed = 0

    @asynccontextmanager
    async def open(self, key: Key) -> AsyncIterator[ToolSession]:
        self.reach("open")
        try:
            yield self
        finally:
            self.closed += 1
            self.reach("close")

    async def run(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        self.reach("run")
        return [ToolResult(Status.ERROR) for _ in calls]

    async def rollback(self) -> None:
        self.reach("rollback")

    def reach(self, where: str) -> None:
        if where == self.where:
            raise ConnectionError("no database")


async def rolled(tool: GuardedToolEnv) -> tuple[StopReason | None, str]:
    engine = ScriptedEngine([call("1"), call("2"), call("3"), call("4"), "done"])
    made = await rollout(
        TASK, KEY, prompt=STATELESS, model=token_model(engine, 20_000), tool_env=tool, seeds=SEEDS, purifier=Purifier()
    )
    return made.stop_reason, made.info.fault


@pytest.mark.parametrize("where", ["open", "run", "rollback"])
@asynchronous
async def test_what_a_tool_raises_is_a_fault(where: str, caplog: pytest.LogCaptureFixture) -> None:
    broken = Breaking(where)
    tool = GuardedToolEnv(broken, "notes")
    for _ in range(2):
        assert await rolled(tool) == (StopReason.FAULT, "The tool notes raised ConnectionError: no database")
    assert broken.closed == (0 if where == "open" else 2)
    (told,) = (each for each in caplog.records if each.levelno == logging.ERROR)  # once, with its traceback
    assert told.exc_info is not None


@asynchronous
async def test_a_tool_that_can_not_be_closed_costs_nothing() -> None:
    broken = Breaking("close")
    stop_reason, fault = await rolled(GuardedToolEnv(broken, "notes"))
    assert (stop_reason, fault, broken.closed) == (StopReason.ANSWERED, "", 1)

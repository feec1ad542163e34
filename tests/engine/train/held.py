"""Loaded by verl's processes: the witness, and rollouts that wait for new weights between two of their turns.

Whether a rollout is under way when weights are replaced is otherwise a matter of luck. Here every rollout of a start,
but those of the first batch, waits in its first tool call until the first update has reached the engines.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from cleaner_rl.train.preflight.witness import FOLDER
from tests.engine.train import witness

__all__ = ["FIRST_BATCH", "witness"]
FIRST_BATCH = 4
"""Prompts of one step."""
_waits: ContextVar[bool] = ContextVar("_waits", default=False)


def _with_waits(run: Callable[..., Any]) -> Callable[..., Any]:
    first: dict[str, None] = {}

    async def waiting(self: Any, sampling_params: dict[str, Any], **row: Any) -> Any:
        if len(first) < FIRST_BATCH:
            first[row["uid"]] = None
        _waits.set(int(row["global_steps"]) == 1 and row["uid"] not in first)
        return await run(self, sampling_params, **row)

    return waiting


def _held(run: Callable[..., Any]) -> Callable[..., Any]:
    # verl writes a step's line after its update has reached the engines.
    lines = Path(os.environ[FOLDER]) / "tiny-cpu" / "verl-0.jsonl"

    async def held(self: Any, call: Any) -> Any:
        while _waits.get() and not (lines.exists() and lines.stat().st_size):  # noqa: ASYNC110
            await asyncio.sleep(0.1)  # what is awaited happens in another process
        return await run(self, call)

    return held


if "verl.trainer.ppo.v1.agent_loop_tq" in sys.modules:
    from cleaner_rl.rollout.tool_env import StatelessToolEnv
    from cleaner_rl.train.verl.agent_loop import CleanerAgentLoop

    CleanerAgentLoop.run = _with_waits(CleanerAgentLoop.run)  # type: ignore[method-assign]
    StatelessToolEnv._run = _held(StatelessToolEnv._run)  # type: ignore[method-assign]

"""Loaded by verl's processes (`model.external_lib`): the preflight's witness, and how many tasks rollouts leave behind.

In processes that run rollouts, how many tasks live on when one ends is written down, as `tasks` reads it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cleaner_rl.train.preflight.witness import FOLDER
from cleaner_rl.train.verl.row_rollout import PHASE
from cleaner_rl.trajectory import Phase


def tasks(folder: Path) -> dict[int, list[int]]:
    """By step: how many tasks lived on in the process whenever a rollout ended."""
    found: dict[int, list[int]] = defaultdict(list)
    for file in folder.glob("*.tasks"):
        for line in file.read_text().splitlines():
            step, left = map(int, line.split())
            found[step].append(left)
    return found


def _counted(run: Callable[..., Any]) -> Callable[..., Any]:
    async def counted(self: Any, sampling_params: dict[str, Any], **row: Any) -> Any:
        made = await run(self, sampling_params, **row)
        if row[PHASE] == Phase.TRAINING:
            with (Path(os.environ[FOLDER]) / f"{os.getpid()}.tasks").open("a") as file:
                file.write(f"{row['global_steps']} {len(asyncio.all_tasks())}\n")
        return made

    return counted


if "verl.trainer.ppo.v1.agent_loop_tq" in sys.modules:
    from cleaner_rl.train.verl.agent_loop import CleanerAgentLoop

    CleanerAgentLoop.run = _counted(CleanerAgentLoop.run)  # type: ignore[method-assign]

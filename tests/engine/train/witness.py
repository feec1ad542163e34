"""Loaded by verl's processes (`model.external_lib`): writes down what each update of the weights was given.

One file a process below `$WITNESS`, a record a micro-batch, as `seen` reads them. In processes that run rollouts, also
how many tasks live on when one ends, as `tasks` reads it.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cleaner_rl.purify import Phase
from cleaner_rl.train.verl.row_rollout import PHASE

FOLDER = "WITNESS"


@dataclass(frozen=True)
class Trained:
    """One sequence, as the loss got it."""

    step: int
    ids: list[int]
    response: int
    """Tokens of the response, which stand at the end."""
    mask: list[int]
    """Of the response."""
    old: npt.NDArray[np.float32]
    """The actor's own log-probs of the response, before the update."""
    rollout: npt.NDArray[np.float32]
    """Those that came with the rollout."""
    advantages: npt.NDArray[np.float32]
    """Of each token of the response; 0 where it is not in the loss."""


def seen(folder: Path) -> list[Trained]:
    """All that was written down."""
    found: list[Trained] = []
    for file in sorted(folder.glob("*.pickle")):
        with file.open("rb") as records:
            while True:
                try:
                    found += pickle.load(records)
                except EOFError:
                    break
    return found


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


def _watched(loss: Callable[..., Any]) -> Callable[..., Any]:
    def watched(config: Any, model_output: Any, data: Any, dp_group: Any = None) -> Any:
        with (Path(os.environ[FOLDER]) / f"{os.getpid()}.pickle").open("ab") as file:
            pickle.dump(list(_rows(data)), file)
        return loss(config, model_output, data, dp_group)

    return watched


def _rows(data: Any) -> Iterator[Trained]:
    names = ("input_ids", "response_mask", "old_log_probs", "rollout_log_probs", "advantages")
    columns = [data[name].unbind() for name in names]
    steps = [getattr(step, "data", step) for step in data["global_steps"]]
    for step, ids, mask, *floats in zip(steps, *columns, strict=True):
        yield Trained(int(step), ids.tolist(), len(mask), mask.tolist(), *[each.numpy() for each in floats])


if "verl.trainer.ppo.v1.agent_loop_tq" in sys.modules:
    from cleaner_rl.train.verl.agent_loop import CleanerAgentLoop

    CleanerAgentLoop.run = _counted(CleanerAgentLoop.run)  # type: ignore[method-assign]
_workers: Any = sys.modules.get("verl.workers.engine_workers")
if _workers is not None:
    _workers.ppo_loss = _watched(_workers.ppo_loss)

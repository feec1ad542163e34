"""Writes down, inside verl's processes, what each update of the weights was given, and how much memory it took.

verl loads it by `model.external_lib`. Each process has one file below `$CLEANER_WITNESS`, with one record per
micro-batch, which `seen` reads. In processes that run rollouts it also makes the first rollout of each prompt as long
as a response may be, by tokens outside the loss: so the update meets the longest row that the recipe allows.
"""

from __future__ import annotations

import os
import pickle
import resource
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cleaner_rl.purify import Phase
from cleaner_rl.train.verl.row_rollout import PHASE

FOLDER, LONGEST = "CLEANER_WITNESS", "CLEANER_WITNESS_LONGEST"
"""Environment variables: where to write, and the tokens of the longest response; without the latter no row grows."""


@dataclass(frozen=True)
class Trained:
    """One sequence, as the loss got it."""

    step: int
    ids: list[int]
    prompt: int
    """How many of them are the prompt's."""
    mask: list[int]
    """Of the response."""
    old: npt.NDArray[np.float32]
    """The actor's own log-probs of the response, before the update."""
    rollout: npt.NDArray[np.float32]
    """Those that came with the rollout."""
    peak_bytes: int = 0
    """The most memory that the process has held so far: of its device if that has its own."""
    device_bytes: int = 0
    """The device's memory; 0 if it is the machine's."""


def seen(folder: Path) -> list[Trained]:
    """Return all that was written down."""
    found: list[Trained] = []
    for file in sorted(folder.glob("*.pickle")):
        with file.open("rb") as records:
            while True:
                try:
                    found += pickle.load(records)
                except EOFError:
                    break
    return found


def _watched(loss: Callable[..., Any]) -> Callable[..., Any]:
    def watched(config: Any, model_output: Any, data: Any, dp_group: Any = None) -> Any:
        with (Path(os.environ[FOLDER]) / f"{os.getpid()}.pickle").open("ab") as file:
            pickle.dump(list(_rows(data)), file)
        return loss(config, model_output, data, dp_group)

    return watched


def _rows(data: Any) -> Iterator[Trained]:
    columns = [data[name].unbind() for name in ("input_ids", "response_mask", "old_log_probs", "rollout_log_probs")]
    steps = [getattr(step, "data", step) for step in data["global_steps"]]
    peak, device = _memory()
    for step, ids, mask, old, rollout in zip(steps, *columns, strict=True):
        prompt = len(ids) - len(mask)
        scores = [each.detach().float().cpu().numpy() for each in (old, rollout)]
        yield Trained(int(step), ids.tolist(), prompt, mask.tolist(), scores[0], scores[1], peak, device)


def _memory() -> tuple[int, int]:
    """Return the peak so far and the device's memory, in bytes."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated(), torch.cuda.get_device_properties(0).total_memory
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, 0


def _stretched(run: Callable[..., Any]) -> Callable[..., Any]:
    async def stretched(self: Any, sampling_params: dict[str, Any], **row: Any) -> Any:
        made = await run(self, sampling_params, **row)
        if row[PHASE] == Phase.TRAINING and int(row["session_id"]) == 0:
            for output in made:
                missing = int(os.environ[LONGEST]) - len(output.response_ids)
                output.response_ids = output.response_ids + output.response_ids[-1:] * missing
                output.response_mask = output.response_mask + [0] * missing
                output.response_logprobs = output.response_logprobs + [0.0] * missing
        return made

    return stretched


if LONGEST in os.environ and "verl.trainer.ppo.v1.agent_loop_tq" in sys.modules:
    from cleaner_rl.train.verl.agent_loop import CleanerAgentLoop

    CleanerAgentLoop.run = _stretched(CleanerAgentLoop.run)  # type: ignore[method-assign]
_workers: Any = sys.modules.get("verl.workers.engine_workers")
if _workers is not None:
    _workers.ppo_loss = _watched(_workers.ppo_loss)

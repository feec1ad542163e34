"""Writes down, inside verl's processes, what each update of the weights was given, and how much memory it took.

verl loads it by `model.external_lib`. Each process has one file below `$CLEANER_WITNESS`, with one record per
micro-batch, which `seen` reads. In processes that run rollouts it writes down those that are whole and those that the
infrastructure broke (`rolled`), and makes the first rollout of each prompt as long as a response may be, by tokens
outside the loss: so the update meets the longest row that the recipe allows.
"""

from __future__ import annotations

import os
import pickle
import resource
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cleaner_rl.train.verl.row_rollout import PHASE
from cleaner_rl.trajectory import Phase

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
    advantages: npt.NDArray[np.float32]
    """Of each token of the response; 0 where it is not in the loss."""
    peak_bytes: int = 0
    """The most memory that the process has held so far: of its device if that has its own."""
    device_bytes: int = 0
    """The device's memory; 0 if it is the machine's."""


def seen(folder: Path) -> list[Trained]:
    """Return the sequences of all updates."""
    return [each for process in by_process(folder) for each in process]


def by_process(folder: Path) -> list[list[Trained]]:
    """Return the sequences that each process trained on, in their order."""
    return [list(_records(file)) for file in _files(folder, "updates")]


@dataclass(frozen=True)
class Rolled:
    """Counts rollouts by their ids: in a small world several can be alike."""

    whole: Counter[tuple[int, ...]] = field(default_factory=Counter)
    broken: Counter[tuple[int, ...]] = field(default_factory=Counter)
    """Those that the infrastructure broke."""


def rolled(folder: Path) -> Rolled:
    """Return all rollouts of the run."""
    found = (Counter(each for file in _files(folder, kind) for each in _records(file)) for kind in ("whole", "broken"))
    return Rolled(*found)


def _files(folder: Path, kind: str) -> list[Path]:
    return sorted(folder.glob(f"*.{kind}"))


def _records(file: Path) -> Iterator[Any]:
    with file.open("rb") as records:
        while True:
            try:
                yield from pickle.load(records)
            except EOFError:
                break


def _note(kind: str, records: Iterable[Any]) -> None:
    with (Path(os.environ[FOLDER]) / f"{os.getpid()}.{kind}").open("ab") as file:
        pickle.dump(list(records), file)


def _watched(loss: Callable[..., Any]) -> Callable[..., Any]:
    def watched(config: Any, model_output: Any, data: Any, dp_group: Any = None) -> Any:
        _note("updates", _rows(data))
        return loss(config, model_output, data, dp_group)

    return watched


def _rows(data: Any) -> Iterator[Trained]:
    names = ("input_ids", "response_mask", "old_log_probs", "rollout_log_probs", "advantages")
    columns = [data[name].unbind() for name in names]
    steps = [getattr(step, "data", step) for step in data["global_steps"]]
    peak, device = _memory()
    for step, ids, mask, *floats in zip(steps, *columns, strict=True):
        if not mask.any() and (ids == ids[0]).all():
            continue  # verl's padding
        old, rollout, advantages = (each.detach().float().cpu().numpy() for each in floats)
        prompt = len(ids) - len(mask)
        yield Trained(int(step), ids.tolist(), prompt, mask.tolist(), old, rollout, advantages, peak, device)


def _memory() -> tuple[int, int]:
    """Return the peak so far and the device's memory, in bytes."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated(), torch.cuda.get_device_properties(0).total_memory
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, 0


def _noted(roll: Callable[..., Any]) -> Callable[..., Any]:
    async def noted(*arguments: Any) -> Any:
        trajectory = await roll(*arguments)
        _note("broken" if trajectory.broken else "whole", [tuple(trajectory.ids().tolist())])
        return trajectory

    return noted


def _rescue_noted(rescue: Callable[..., Any]) -> Callable[..., Any]:
    async def noted(*arguments: Any) -> Any:
        tried = await rescue(*arguments)
        if tried is not None and tried.rescued is not None:
            _note("whole", [tuple(tried.rescued.ids().tolist())])
        return tried

    return noted


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


if "verl.trainer.ppo.v1.agent_loop_tq" in sys.modules:
    _loops: Any = import_module("cleaner_rl.train.verl.agent_loop")
    _loops.roll = _noted(_loops.roll)
    _loops.rescue = _rescue_noted(_loops.rescue)
    if LONGEST in os.environ:
        _loops.CleanerAgentLoop.run = _stretched(_loops.CleanerAgentLoop.run)
_workers: Any = sys.modules.get("verl.workers.engine_workers")
if _workers is not None:
    _workers.ppo_loss = _watched(_workers.ppo_loss)

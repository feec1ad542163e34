"""Loaded by verl's training workers (`model.external_lib`): writes down what each update of the weights was given.

One file a process below `$WITNESS`, a record a micro-batch, as `seen` reads them.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

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


def _watched(loss: Callable[..., Any]) -> Callable[..., Any]:
    def watched(config: Any, model_output: Any, data: Any, dp_group: Any = None) -> Any:
        with (Path(os.environ[FOLDER]) / f"{os.getpid()}.pickle").open("ab") as file:
            pickle.dump(list(_rows(data)), file)
        return loss(config, model_output, data, dp_group)

    return watched


def _rows(data: Any) -> Iterator[Trained]:
    columns = [data[name].unbind() for name in ("input_ids", "response_mask", "old_log_probs", "rollout_log_probs")]
    steps = [getattr(step, "data", step) for step in data["global_steps"]]
    for step, ids, mask, old, rollout in zip(steps, *columns, strict=True):
        yield Trained(int(step), ids.tolist(), len(mask), mask.tolist(), old.numpy(), rollout.numpy())


_workers: Any = sys.modules.get("verl.workers.engine_workers")
if _workers is not None:
    _workers.ppo_loss = _watched(_workers.ppo_loss)

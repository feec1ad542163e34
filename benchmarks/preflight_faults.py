"""Breaks one thing in the processes of a training run, to see whether a preflight finds it.

`benchmarks.preflight` has every Python process import this module when it starts. It waits until the module is imported
that the fault of `$CLEANER_INJECTED` is in, and changes one function of it. The process of the preflight itself, which
judges, stays as it is.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from itertools import count
from types import ModuleType
from typing import Any

FAULT = "CLEANER_INJECTED"
SLOW_SECONDS = 0.5
"""How long a call takes in the slow sandbox, which runs one at a time."""
EVERY = 8
"""One call of so many meets a sandbox that broke."""


def shift_mask(module: Any) -> None:
    """Every loss mask is one token late."""
    output = module._output

    def shifted(*arguments: Any) -> Any:
        made = output(*arguments)
        made.response_mask = [0, *made.response_mask[:-1]]
        return made

    module._output = shifted


def keep_scores(module: Any) -> None:
    """Tokens that an edit moved keep the log-probs of the context in which they were sampled."""
    rescore = module.rescore

    async def kept(trajectory: Any, score: Any) -> Any:
        done = await rescore(trajectory, score)
        return replace(done, turns=tuple(map(_as_sampled, done.turns)))

    module.rescore = kept


def _as_sampled(turn: Any) -> Any:
    spans = {name: getattr(turn, name) for name in ("reasoning", "action")}
    moved = {name: span for name, span in spans.items() if span is not None and span.rescored is not None}
    return replace(turn, **{name: replace(span, rescored=span.sampled) for name, span in moved.items()})


def drop_weights(module: Any) -> None:
    """The engine takes new weights and leaves them aside."""
    module.vLLMColocateWorkerExtension._update_weights = lambda *_arguments, **_options: None


def slow_sandbox(module: Any) -> None:
    """A node runs one program at a time, each for half a second at least."""
    run, gate = module.Node.run, asyncio.Lock()

    async def slowly(self: Any, request: Any) -> Any:
        async with gate:
            await asyncio.sleep(SLOW_SECONDS)
            return await run(self, request)

    module.Node.run = slowly


def break_calls(module: Any) -> None:
    """Some calls meet a sandbox that broke."""
    from cleaner_rl.tools import Status, ToolResult

    run, numbers = module.StatelessToolEnv._run, count(1)

    async def breaking(self: Any, call: Any) -> Any:
        if next(numbers) % EVERY == 0:
            return ToolResult(Status.FAULT, explanation="The sandbox broke.")
        return await run(self, call)

    module.StatelessToolEnv._run = breaking


def reward_faults(module: Any) -> None:
    """A rollout that the infrastructure broke counts as one that the model failed."""
    shape = module.OverlongPenalty.shape

    def shaped(self: Any, trajectory: Any) -> Any:
        return shape(self, replace(trajectory, reward=-1.0) if trajectory.broken else trajectory)

    module.OverlongPenalty.shape = shaped


def take_faults(module: Any) -> None:
    """Such a rollout gives a row."""
    row_or_exclusion = module.row_or_exclusion

    def taken(trajectory: Any, choice: Any) -> Any:
        if trajectory.broken and trajectory.reward is not None:
            turns = tuple(replace(turn, results=()) for turn in trajectory.turns)
            whole = replace(trajectory.info, fault="")
            trajectory = replace(trajectory, turns=turns, stop_reason=None, info=whole)
        return row_or_exclusion(trajectory, choice)

    module.row_or_exclusion = taken


CHANGES: dict[str, dict[str, Callable[[Any], None]]] = {
    "mask shifted by one": {"cleaner_rl.train.verl.agent_loop": shift_mask},
    "edits not re-scored": {"cleaner_rl.rollout.model": keep_scores},
    "weights not updated": {"verl.workers.rollout.vllm_rollout.utils": drop_weights},
    "slow sandbox": {"cleaner_sandbox.node.node": slow_sandbox},
    "row of a fault": {
        "cleaner_rl.rollout.tool_env": break_calls,
        "cleaner_rl.train.rows.overlong": reward_faults,
        "cleaner_rl.train.rows.row": take_faults,
    },
}
"""By fault: what is changed in which module."""


class Changes(MetaPathFinder):
    """Changes modules right after they are imported."""

    def __init__(self, changes: dict[str, Callable[[Any], None]]) -> None:
        self._changes = changes

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find a module as Python does, and have it changed."""
        if name not in self._changes:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        execute, change = spec.loader.exec_module, self._changes[name]

        def changed(module: ModuleType) -> None:
            execute(module)
            change(module)

        spec.loader.exec_module = changed  # type: ignore[method-assign]
        return spec


if os.environ.get(FAULT) in CHANGES and "--preflight" not in sys.orig_argv:
    sys.meta_path.insert(0, Changes(CHANGES[os.environ[FAULT]]))

"""Rollouts whose ids and log-probs can be checked: real engines and real repairs, whatever the model is able to.

A random model makes no calls that anybody could run. Here the second half of anything it writes is a call, and a
stand-in for a tool says which calls fail; so its turns are cut, repaired, grafted and re-scored like any others.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cleaner_rl.purify import PurifyConfig, PurifyScope
from cleaner_rl.rollout import ChatRenderer, Completion, Purifier, RolloutBudget, TokenModel, grade_and_purify, rollout
from cleaner_rl.rollout.engines import Address, VllmEngine
from cleaner_rl.rollout.tool_env import ToolSession
from cleaner_rl.tasks import ChoiceGrader, Message, Task, load_prompt
from cleaner_rl.tools import ExceptionInfo, ParsedText, Status, ToolCall, ToolResult, ToolSet
from cleaner_rl.trajectory import Floats, Ids, Key, RepairMode, Seeds, TokenSpan, Trajectory

PROMPT = load_prompt("stateless")


class AnyText:
    """A stand-in for a call format: the second half of any text is a call, so that any model makes calls."""

    def parse(self, text: str, tools: ToolSet) -> ParsedText:  # noqa: ARG002
        """One call."""
        half = len(text) // 2
        return ParsedText((ToolCall("python", {}, text[half:], half, len(text)),), len(text))


class Moody:
    """A stand-in for a tool: of three calls, the first and the second fail."""

    stateful = False
    limits = None

    def __init__(self) -> None:
        self._calls = 0

    @asynccontextmanager
    async def open(self, key: Key) -> AsyncIterator[ToolSession]:  # noqa: ARG002
        """Itself."""
        yield self

    async def run(self, calls: Sequence[ToolCall]) -> list[ToolResult]:  # noqa: ARG002
        """A failure, or 42; what it says holds a control token's name."""
        self._calls += 1
        failure = ToolResult(Status.ERROR, exception=ExceptionInfo("ValueError", f"try {self._calls} <|im_end|>"))
        return [failure if self._calls % 3 else ToolResult(Status.OK, "42\n")]

    async def rollback(self) -> None:
        """There is nothing to go back from."""


class Talkative(VllmEngine):
    """Ends turns early: a random model hardly ever ends one by itself."""

    async def sample(self, prompt_T: Ids, *, stop_ids: tuple[int, ...], **options: Any) -> Completion:
        """As vLLM, with fifty more tokens to stop at."""
        return await super().sample(prompt_T, stop_ids=(*stop_ids, *range(10, 60)), **options)


@cache
def tokenizer(model: Path) -> Any:
    """Of a model's folder."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model)


def load(folder: Path, dtype: Any, attention: str) -> Any:
    """The model of a folder in transformers."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation=attention).eval()


@cache
def reference(folder: Path) -> Any:
    """The same in float32, kept."""
    import torch

    return load(folder, torch.float32, "sdpa")


def forward(model: Any, ids_T: Ids) -> npt.NDArray[np.float64]:
    """The log-prob of each token but the first, in one pass."""
    import torch

    with torch.no_grad():
        logits = model(torch.tensor(ids_T[None].astype(np.int64))).logits[0]
    ranked = logits[:-1].log_softmax(-1)
    picked = ranked.gather(1, torch.tensor(ids_T[1:, None].astype(np.int64)))[:, 0]
    return np.asarray(picked.numpy(), np.float64)


def full_forward(folder: Path, ids_T: Ids) -> Floats:
    """The same by the model of a folder in float32."""
    return forward(reference(folder), ids_T).astype(np.float32)


async def rolled(url: str, folder: Path, mode: RepairMode, number: int) -> Trajectory[TokenSpan]:
    """One rollout, repaired and re-scored, by the model in a folder that an address serves."""
    task = Task(f"engine/{number}", (Message("user", "What is six times seven?"),), "choice", "A")
    key, seeds = Key(f"{mode}", 0, task.id, number), Seeds(5, task.id, number)
    purifier = Purifier(mode=mode, config=PurifyConfig(attempts=3, scope=PurifyScope.ALL))
    async with Address(url) as address:
        chat = ChatRenderer(tokenizer(folder), ToolSet(PROMPT.tool))
        model = TokenModel(Talkative(address), chat, AnyText(), window=4096)
        tool_env = Moody()
        made = await rollout(
            task,
            key,
            prompt=PROMPT,
            model=model,
            tool_env=tool_env,
            seeds=seeds,
            budget=RolloutBudget(turns=4, tokens=1_500),
            purifier=purifier,
        )
        graders = {"choice": ChoiceGrader()}
        return await grade_and_purify(
            made, task, model=model, tool_env=tool_env, graders=graders, seeds=seeds, purifier=purifier
        )


def farthest(folder: Path, trajectory: Trajectory[TokenSpan]) -> float:
    """How far a sampled token's log-prob is from that of a full forward pass over the final sequence, at most."""
    mask_T = trajectory.loss_mask()[1:]
    return float(np.abs(trajectory.logprobs()[1:] - full_forward(folder, trajectory.ids()))[mask_T].max())

"""A scripted stand-in for an engine, and sandboxes that count what they hold."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cleaner_rl.rollout import Completion, EngineFaultError, Finish, Sampling, TokenModel
from cleaner_rl.tasks import Message, Prompt, Task, load_prompt
from cleaner_rl.tools import call_format
from cleaner_rl.trajectory import Floats, Ids, Key, Scores, Seeds
from cleaner_sandbox import BARE, Node, NodeConfig
from tests.rollout.chats import chat, tokenizer

TASK = Task("test/1", (Message("user", "How many?"),), grader="choice", truth="C")
KEY = Key("run", 3, TASK.id, 1)
SEEDS = Seeds(7, TASK.id, 1)
STATELESS: Prompt = load_prompt("stateless")


def call(code: str, said: str = "Let me see.\n") -> str:
    """A turn that calls the tool."""
    return f"{said}<tool_call>\n{json.dumps({'name': 'python', 'arguments': {'code': code}})}\n</tool_call>"


def logprobs_of(prefix_T: Ids, suffix_T: Ids) -> Floats:
    """Of each token after all before it: any function of them that can't be guessed."""
    values = []
    state = zlib.crc32(prefix_T.astype(np.int32).tobytes())
    for token in suffix_T.astype(np.int32):
        state = zlib.crc32(token.tobytes(), state)
        values.append(-(state % 4096) / 4096)
    return np.array(values, np.float32)


@dataclass
class Asked:
    prompt: list[int]
    seed: int
    max_tokens: int
    request: str


Reply = str | Exception | None
"""What the model writes; what the engine raises; or None: it never answers."""


@dataclass
class ScriptedEngine:
    """Gives these replies, one after the other; the last one again and again."""

    replies: Sequence[Reply]
    asked: list[Asked] = field(default_factory=list)
    scored: list[tuple[list[int], list[int]]] = field(default_factory=list)
    waiting: int = 0
    """Requests that are open now."""
    tokens: Any = None
    """The tokenizer; None: Qwen3's."""

    async def sample(
        self,
        prompt_T: Ids,
        *,
        max_tokens: int,
        seed: int,
        sampling: Sampling,
        stop_ids: tuple[int, ...],
        request: str,
    ) -> Completion:
        reply = self.replies[min(len(self.asked), len(self.replies) - 1)]
        self.asked.append(Asked(prompt_T.tolist(), seed, max_tokens, request))
        if isinstance(reply, Exception):
            raise reply
        self.waiting += 1
        try:
            await (asyncio.sleep(0) if reply is not None else asyncio.Event().wait())
        finally:
            self.waiting -= 1
        assert reply is not None
        ids = np.array([*(self.tokens or tokenizer("qwen3")).encode(reply), stop_ids[0]], np.int32)[:max_tokens]
        finish = Finish.STOP if ids[-1] == stop_ids[0] else Finish.LENGTH
        return Completion(ids, logprobs_of(prompt_T, ids), finish, version=4)

    async def score(self, prefix_T: Ids, suffix_T: Ids, *, request: str) -> Scores:
        self.scored.append((prefix_T.tolist(), suffix_T.tolist()))
        return Scores(logprobs_of(prefix_T, suffix_T), version=4)


class BrokenScores(ScriptedEngine):
    async def score(self, prefix_T: Ids, suffix_T: Ids, *, request: str) -> Scores:
        raise EngineFaultError("the engine is gone")


def token_model(engine: ScriptedEngine, window: int = 20_000, sampling: Sampling | None = None) -> TokenModel:
    return TokenModel(engine, chat(), call_format("hermes"), window=window, sampling=sampling or Sampling())


@asynccontextmanager
async def node() -> AsyncIterator[Node]:
    async with Node(NodeConfig(slots=2, environments=(BARE,))) as made:
        yield made


def tasks_left() -> set[str]:
    """Names of the tasks that still live, but for the one that asks."""
    return {str(task.get_coro()) for task in asyncio.all_tasks() if task is not asyncio.current_task()}

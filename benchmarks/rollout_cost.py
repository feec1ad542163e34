"""What the loop costs beside the bare engine, and a suffix beside a whole prompt: parts of `benchmarks.rollout`."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import aiohttp
import numpy as np

from benchmarks.rollout_exactness import PROMPT, Moody, tokenizer
from benchmarks.serving import Served
from cleaner_rl.rollout import ChatRenderer, RolloutBudget, TokenModel, rollout
from cleaner_rl.rollout.engines import Address, VllmEngine
from cleaner_rl.rollout.engines.vllm import ROUTE
from cleaner_rl.tasks import Message, Task
from cleaner_rl.tools import ParsedText, ToolSet
from cleaner_rl.trajectory import Key, Seeds

ROUNDS = 7
"""Of both, in turn: neighbours on a shared machine slow down whichever runs, so the median ratio counts."""
ROUNDING = 0.01
"""Of the tokens: in other company a log-prob is rounded otherwise, and once in a while a seed draws another token."""


class NoCalls:
    """A stand-in for a call format: whatever a model writes is its answer."""

    def parse(self, text: str, tools: ToolSet) -> ParsedText:  # noqa: ARG002
        """No calls."""
        return ParsedText((), len(text))


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one thing over another, by round."""

    wall: list[float]
    cpu: list[float]
    """CPU time of client and server together: on a machine where others work too, the wall time without them."""


async def loop_over_engine(served: Served, rollouts: int, tokens: int) -> Cost:
    """Time of rollouts without tools over that of their bare requests: same prompts and sampling."""
    url = served.url
    chat = ChatRenderer(tokenizer(served.model), ToolSet(PROMPT.tool))
    tasks = [
        Task(f"cost/{number}", (Message("user", f"Tell me of the number {number}."),), "none", "")
        for number in range(rollouts)
    ]
    cost = Cost([], [])
    async with Address(url) as address, aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as bare:
        model = TokenModel(VllmEngine(address), chat, NoCalls(), window=await VllmEngine(address).window())
        prompts = [chat.prompt(PROMPT.messages(task)).ids.tolist() for task in tasks]

        async def by_loop(task: Task, _: list[int]) -> int:
            made = await rollout(
                task,
                Key("cost", 0, task.id, 0),
                prompt=PROMPT,
                model=model,
                tool_env=Moody(),
                seeds=Seeds(1, task.id, 0),
                budget=RolloutBudget(turns=1, tokens=tokens),
            )
            return len(made) - len(made.prompt)

        async def by_engine(task: Task, prompt: list[int]) -> int:
            settings = {
                "max_tokens": tokens,
                "seed": Seeds(1, task.id, 0).request(0),
                "temperature": 1.0,
                "stop_token_ids": list(chat.stop_ids),
                "logprobs": 0,
                "detokenize": False,
            }
            body = {"token_ids": prompt, "sampling_params": settings}
            async with bare.post(url + ROUTE, json=body) as response:
                answer = await response.json()
            return len(answer["choices"][0]["token_ids"])

        def now() -> tuple[float, float]:
            return time.perf_counter(), time.process_time() + served.cpu_seconds

        for number in range(ROUNDS + 1):
            drawn, seconds = {}, {}
            for way in (by_engine, by_loop) if number % 2 else (by_loop, by_engine):
                begun = now()
                drawn[way] = sum(await asyncio.gather(*map(way, tasks, prompts)))
                seconds[way] = [after - before for before, after in zip(begun, now(), strict=True)]
            if abs(drawn[by_loop] / drawn[by_engine] - 1) > ROUNDING:
                raise RuntimeError(f"the engine drew {drawn[by_engine]} tokens, and for the loop {drawn[by_loop]}")
            if number:  # the first round fills the caches
                for ratios, looped, asked in zip(
                    (cost.wall, cost.cpu), seconds[by_loop], seconds[by_engine], strict=True
                ):
                    ratios.append(round(looped / asked, 4))
    return cost


async def suffix_over_full(
    url: str, *, vocabulary: int, length: int = 2_048, suffix: int = 68, rounds: int = 3
) -> float:
    """Seconds to score a suffix behind a cached prefix, over those to score the whole prompt; the least of a few."""
    draw = np.random.default_rng(0)
    ratios = []
    async with Address(url) as address:
        engine = VllmEngine(address)
        for _ in range(rounds):
            ids_T = draw.integers(100, vocabulary, length).astype(np.int32)
            begun = time.perf_counter()
            await engine.score(ids_T[:1], ids_T[1:], request="whole")
            whole = time.perf_counter() - begun
            # Another end for the same beginning, as a repair has it.
            ids_T[-suffix:] = draw.integers(100, vocabulary, suffix)
            begun = time.perf_counter()
            await engine.score(ids_T[:-suffix], ids_T[-suffix:], request="suffix")
            ratios.append((time.perf_counter() - begun) / whole)
    return round(min(ratios), 4)

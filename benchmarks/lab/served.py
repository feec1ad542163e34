"""Rollouts of a model that a run has saved, served here by transformers (`benchmarks.toy.local`), not by the engine
that trains. Repair is off, and every task has a random stream of its own, the same for all models."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.lab.environments import ToyEnvironment
from benchmarks.toy.local import LocalEngine
from benchmarks.toy.sandboxes import offered
from cleaner_rl.rollout import (
    ChatRenderer,
    Completion,
    Engine,
    Finish,
    RolloutBudget,
    Sampling,
    TokenModel,
    ToolEnv,
    rollout,
)
from cleaner_rl.rollout import grade_and_purify as finished
from cleaner_rl.tasks import Grader, MathGrader, MathPool, Task
from cleaner_rl.tools import ToolSet, call_format, derive_seed
from cleaner_rl.trajectory import Ids, Key, Scores, Seeds, TokenSpan, Trajectory

AT_ONCE = 64


class Begun:
    """A policy whose first words in a rollout are given to it."""

    def __init__(self, engine: Engine, words_T: Ids) -> None:  # noqa: N803 - the shape is part of the name
        self._policy, self._words = engine, words_T
        self._begun = False

    async def sample(
        self,
        prompt_T: Ids,  # noqa: N803
        *,
        max_tokens: int,
        seed: int,
        sampling: Sampling,
        stop_ids: tuple[int, ...],
        request: str,
    ) -> Completion:
        """The given words, and from then on the policy's own."""
        if self._begun:
            return await self._policy.sample(
                prompt_T, max_tokens=max_tokens, seed=seed, sampling=sampling, stop_ids=stop_ids, request=request
            )
        self._begun = True
        return Completion(self._words, None, Finish.STOP)

    async def score(self, prefix_T: Ids, suffix_T: Ids, *, request: str) -> Scores:  # noqa: N803
        """The policy's own."""
        return await self._policy.score(prefix_T, suffix_T, request=request)


def rolled(
    model: Path,
    environment: ToyEnvironment,
    tasks: Sequence[Task],
    turns: int,
    stream: str,
    begin: Callable[[Task], str] | None = None,
) -> list[Trajectory[TokenSpan]]:
    """One rollout of each task. `begin` writes a first turn that the model doesn't choose."""
    return asyncio.run(_rolled(LocalEngine(model), model, environment, tasks, turns, stream, begin))


async def _rolled(
    engine: Engine,
    model: Path,
    environment: ToyEnvironment,
    tasks: Sequence[Task],
    turns: int,
    stream: str,
    begin: Callable[[Task], str] | None,
) -> list[Trajectory[TokenSpan]]:
    from transformers import AutoTokenizer

    regime = environment.regime
    chat = ChatRenderer(AutoTokenizer.from_pretrained(model), ToolSet(regime.prompt.tool))
    budget = RolloutBudget(turns=turns, tokens=environment.window)
    free = asyncio.Semaphore(AT_ONCE)
    with MathPool(1) as pool:
        graders: dict[str, Grader] = {"math": MathGrader(pool)}
        async with offered([environment.folder / "kit"], regime.tool) as (tool_env,):

            async def one(task: Task) -> Trajectory[TokenSpan]:
                async with free:
                    begun = engine if begin is None else Begun(engine, chat.written(begin(task)).ids)
                    seeds = Seeds(derive_seed(0, stream), task.id, 0)
                    return await _one(task, begun, chat, environment, tool_env, graders, budget, seeds)

            return list(await asyncio.gather(*[one(task) for task in tasks]))


async def _one(
    task: Task,
    engine: Engine,
    chat: ChatRenderer,
    environment: ToyEnvironment,
    tool_env: ToolEnv,
    graders: dict[str, Grader],
    budget: RolloutBudget,
    seeds: Seeds,
) -> Trajectory[TokenSpan]:
    prompt = environment.regime.prompt
    model = TokenModel(engine, chat, call_format(prompt.call_format), window=environment.window)
    key = Key("served", 0, task.id, 0)
    made = await rollout(
        task, key, prompt=prompt, model=model, tool_env=tool_env, seeds=seeds, budget=budget, purifier=None
    )
    return await finished(made, task, model=model, tool_env=tool_env, graders=graders, seeds=seeds)

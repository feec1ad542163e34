"""Rollouts of a model that a run has saved, served here by transformers (`benchmarks.taught.local`), not by the engine
that trains. Repair is off, and every task has a random stream of its own, the same for all models."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.lab.worlds import World
from benchmarks.taught.local import LocalPolicy
from benchmarks.taught.workshop import offered
from cleaner_rl.rollout import Chat, Completion, Finish, Policy, RolloutBudget, Sampling, TokenModel, Toolbox, rollout
from cleaner_rl.rollout import finish as finished
from cleaner_rl.tasks import Grader, MathGrader, MathPool, Task
from cleaner_rl.tools import ToolSet, call_format, derive_seed
from cleaner_rl.trajectory import Ids, Key, Scores, Seeds, TokenSpan, Trajectory

AT_ONCE = 64


class Begun:
    """A policy whose first words in a rollout are given to it."""

    def __init__(self, policy: Policy, words_T: Ids) -> None:  # noqa: N803 - the shape is part of the name
        self._policy, self._words = policy, words_T
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
    world: World,
    tasks: Sequence[Task],
    turns: int,
    stream: str,
    begin: Callable[[Task], str] | None = None,
) -> list[Trajectory[TokenSpan]]:
    """One rollout of each task. `begin` writes a first turn that the model doesn't choose."""
    return asyncio.run(_rolled(LocalPolicy(model), model, world, tasks, turns, stream, begin))


async def _rolled(
    policy: Policy,
    model: Path,
    world: World,
    tasks: Sequence[Task],
    turns: int,
    stream: str,
    begin: Callable[[Task], str] | None,
) -> list[Trajectory[TokenSpan]]:
    from transformers import AutoTokenizer

    regime = world.regime
    chat = Chat(AutoTokenizer.from_pretrained(model), ToolSet(regime.prompt.tool))
    budget = RolloutBudget(turns=turns, tokens=world.window)
    free = asyncio.Semaphore(AT_ONCE)
    with MathPool(1) as pool:
        graders: dict[str, Grader] = {"math": MathGrader(pool)}
        async with offered([world.folder / "site"], regime.tool) as (toolbox,):

            async def one(task: Task) -> Trajectory[TokenSpan]:
                async with free:
                    begun = policy if begin is None else Begun(policy, chat.written(begin(task)).ids)
                    seeds = Seeds(derive_seed(0, stream), task.id, 0)
                    return await _one(task, begun, chat, world, toolbox, graders, budget, seeds)

            return list(await asyncio.gather(*[one(task) for task in tasks]))


async def _one(
    task: Task,
    policy: Policy,
    chat: Chat,
    world: World,
    toolbox: Toolbox,
    graders: dict[str, Grader],
    budget: RolloutBudget,
    seeds: Seeds,
) -> Trajectory[TokenSpan]:
    prompt = world.regime.prompt
    model = TokenModel(policy, chat, call_format(prompt.call_format), window=world.window)
    key = Key("served", 0, task.id, 0)
    made = await rollout(
        task, key, prompt=prompt, model=model, toolbox=toolbox, seeds=seeds, budget=budget, purifier=None
    )
    return await finished(made, task, model=model, toolbox=toolbox, graders=graders, seeds=seeds)

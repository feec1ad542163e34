"""Recovery skill: failed first calls, the same for every arm and step, and how often a model answers rightly then.

The failures are the regime's own: names that have changed since, and the mistakes that its teacher makes, written by
seed and task. Each is put into the model's mouth and really runs; the model has one call and an answer left. Repair is
off, and these tasks are in no other evaluation.

Models are served here by transformers (`benchmarks.taught.local`), not by the engine that trains.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

from benchmarks.lab.worlds import World
from benchmarks.taught.library import OPERATIONS
from benchmarks.taught.local import LocalPolicy
from benchmarks.taught.mistakes import Kind, Program, call, malformed
from benchmarks.taught.questions import Question
from benchmarks.taught.regimes import Regime
from benchmarks.taught.workshop import offered
from cleaner_rl.rollout import Chat, Completion, Finish, Policy, RolloutBudget, Sampling, TokenModel, Toolbox, rollout
from cleaner_rl.rollout import finish as finished
from cleaner_rl.tasks import Grader, MathGrader, MathPool, Task
from cleaner_rl.tools import ToolSet, call_format, derive_seed
from cleaner_rl.trajectory import Ids, Key, Scores, Seeds, TokenSpan, Trajectory

AT_ONCE = 64
OUTDATED = 0.5
"""How often a first call fails because of a changed name, where the question has one."""


def failed_first(task: Task, regime: Regime) -> str:
    """A first turn that fails, as the regime's teacher could have written it."""
    question = question_of(task)
    draw = random.Random(derive_seed(0, "failed first", task.id))
    known, current = regime.known, regime.current
    outdated = any(known[stem] != current[stem] for stem in question.stems)
    if outdated and draw.random() < OUTDATED:
        return f"{plan(question)}\n{call(Program(question, known).right())}"
    program = Program(question, current)
    possible = [kind for kind in program.kinds() if kind in regime.kinds]
    kind = draw.choices(possible, [regime.kinds[each] for each in possible])[0]
    if kind is Kind.MALFORMED:
        return f"{plan(question)}\n{malformed(program.right(), draw)}"
    return f"{plan(question)}\n{call(program.wrong(kind, draw, regime.far))}"


def question_of(task: Task) -> Question:
    """The question that a task was made of."""
    numbers, stems = task.extra["numbers"], task.extra["stems"]
    assert isinstance(numbers, list)
    assert isinstance(stems, list)
    return Question(tuple(numbers), tuple(stems), bool(task.extra["stepwise"]))


def plan(question: Question) -> str:
    """The sentence before a call."""
    return ", ".join(OPERATIONS[stem].words for stem in question.stems).capitalize() + "."


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


def recovery(model: Path, world: World) -> dict[str, float]:
    """How a model does after the failures of its world."""
    return counted(asyncio.run(_rolled(LocalPolicy(model), model, world)))


def counted(trajectories: Sequence[Trajectory[TokenSpan]]) -> dict[str, float]:
    """Shares of the rollouts that did begin with a failure."""
    rows = [each for each in trajectories if each.usable and each.success is not None and each.turns[0].failed]
    count = max(1, len(rows))
    return {
        "rollouts": len(rows),
        "right": sum(bool(each.success) for each in rows) / count,
        "next_call_works": sum(len(each.turns) > 1 and each.turns[1].verified for each in rows) / count,
    }


async def _rolled(policy: Policy, model: Path, world: World) -> list[Trajectory[TokenSpan]]:
    from transformers import AutoTokenizer

    regime = world.regime
    chat = Chat(AutoTokenizer.from_pretrained(model), ToolSet(regime.prompt.tool))
    free = asyncio.Semaphore(AT_ONCE)
    with MathPool(1) as pool:
        graders: dict[str, Grader] = {"math": MathGrader(pool)}
        async with offered([world.folder / "site"], regime.tool) as (toolbox,):

            async def one(task: Task) -> Trajectory[TokenSpan]:
                async with free:
                    words = chat.written(failed_first(task, regime)).ids
                    return await _one(task, Begun(policy, words), chat, world, toolbox, graders)

            return list(await asyncio.gather(*[one(task) for task in world.failed_first()]))


async def _one(
    task: Task, policy: Policy, chat: Chat, world: World, toolbox: Toolbox, graders: dict[str, Grader]
) -> Trajectory[TokenSpan]:
    regime = world.regime
    model = TokenModel(policy, chat, call_format(regime.prompt.call_format), window=world.window)
    seeds = Seeds(derive_seed(0, "recovery"), task.id, 0)
    budget = RolloutBudget(turns=regime.calls + 1, tokens=world.window)
    key = Key("recovery", 0, task.id, 0)
    made = await rollout(
        task, key, prompt=regime.prompt, model=model, toolbox=toolbox, seeds=seeds, budget=budget, purifier=None
    )
    return await finished(made, task, model=model, toolbox=toolbox, graders=graders, seeds=seeds)

"""The rollout runner that all rollouts of one process share, opened once.

verl makes an agent loop for each rollout; what they need (the chat renderer, the sandbox's client, the graders) is kept
here for as long as the process lives, so that a thousand rollouts leave no more tasks, connections and processes behind
than one.
"""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from cleaner_rl.rollout import (
    Engine,
    Purifier,
    RescueConfig,
    RolloutBudget,
    RolloutRunner,
    Sampling,
    TokenModel,
    standard_graders,
    tool_env_of,
)
from cleaner_rl.tasks import MathPool, load_prompt
from cleaner_rl.tools import derive_seed
from cleaner_rl.train.recipe.settings import Recipe
from cleaner_rl.train.verl.custom_reward import custom_graders
from cleaner_rl.train.verl.plan import RunPlan
from cleaner_rl.train.verl.settings import template_of
from cleaner_rl.trajectory import Phase, RepairMode, TokenSpan
from cleaner_sandbox.client import SandboxClient
from cleaner_sandbox.protocol import Limits, SessionRequest

_OPEN: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[RolloutRunner[TokenSpan]]] = WeakKeyDictionary()


async def shared_runner(plan: RunPlan, tokenizer: Any, engine: Engine) -> RolloutRunner[TokenSpan]:
    """Return this process's runner, which the first caller opens with its engine. A process serves one run."""
    loop = asyncio.get_running_loop()
    if loop not in _OPEN:
        _OPEN[loop] = loop.create_task(_open(plan, tokenizer, engine))
    return await asyncio.shield(_OPEN[loop])


async def _open(plan: RunPlan, tokenizer: Any, engine: Engine) -> RolloutRunner[TokenSpan]:
    sandbox = await SandboxClient(plan.sandbox, token=read_token(plan.recipe.sandbox.token_file)).__aenter__()
    runner = runner_of(plan.recipe, tokenizer, engine, sandbox)
    # What was loaded until now, torch and verl with it, lives as long as the process. Left to the collector it would be
    # walked through again and again, and each time all rollouts of the process would stand still.
    gc.collect()
    gc.freeze()
    return runner


def runner_of(recipe: Recipe, tokenizer: Any, engine: Engine, sandbox: Any) -> RolloutRunner[TokenSpan]:
    """Return a runner by a recipe's settings for training; a fault is not retried, because verl refills the group."""
    prompt = load_prompt(recipe.prompt)
    request = session_request(recipe)
    return RolloutRunner(
        TokenModel.for_prompt(
            engine,
            tokenizer,
            prompt,
            window=recipe.window,
            template=template_of(recipe),
            renderer=recipe.model.renderer,
        ),
        tool_env_of(prompt, sandbox, request),
        prompt,
        standard_graders(sandbox, MathPool(), custom_graders(recipe, tokenizer)),
        budget_of(recipe, Phase.TRAINING),
        purifier_of(recipe, Phase.TRAINING),
        recipe.tasks.reward,
        recipe.seed,
        retries=0,
        weights=recipe.tasks.graders,
    )


def for_phase(
    shared: RolloutRunner[TokenSpan],
    recipe: Recipe,
    engine: Engine,
    phase: Phase,
    drawn: tuple[int, ...],
    sampling: Sampling,
    window: int,
) -> RolloutRunner[TokenSpan]:
    """Return a process's runner for one phase. `drawn` tells draws apart; it is empty where all are to be alike."""
    assert isinstance(shared.model, TokenModel)
    return replace(
        shared,
        model=shared.model.served_by(engine, sampling, window),
        budget=budget_of(recipe, phase),
        purifier=purifier_of(recipe, phase),
        rescue=rescue_of(recipe, phase),
        seed=derive_seed(recipe.seed, phase, *drawn),
    )


def session_request(recipe: Recipe) -> SessionRequest:
    """Return the session, or the limits of a single run, that a recipe's calls have."""
    limits = Limits(cpu_seconds=recipe.sandbox.cpu_seconds, memory_mb=recipe.sandbox.memory_mb)
    return SessionRequest(Path(recipe.sandbox.environment).name, limits)


def budget_of(recipe: Recipe, phase: Phase) -> RolloutBudget:
    """Return what a rollout may use in a phase."""
    budget = recipe.budget
    turns = (budget.evaluation_turns if phase is Phase.EVALUATION else 0) or budget.turns
    return RolloutBudget(turns, budget.response_tokens, budget.seconds or None, budget.lookahead_tokens)


def purifier_of(recipe: Recipe, phase: Phase) -> Purifier | None:
    """Return how rollouts are purified in a phase; None if the recipe's method edits nothing."""
    method, purify = recipe.method, recipe.purify
    if not method.edits:
        return None
    mode = RepairMode.SAAR if method.saar else RepairMode.HINDSIGHT
    fallback = purify.rest() if method.saar else None
    return Purifier(mode, purify.config(), phase, fallback=fallback)


def rescue_of(recipe: Recipe, phase: Phase) -> RescueConfig | None:
    """Return how groups are rescued in a phase; None if they are not."""
    if recipe.rescue is None or phase is Phase.EVALUATION:
        return None
    return RescueConfig(recipe.rescue.attempts, recipe.rescue.share)


def read_token(file: str) -> str | None:
    """Return the token of a recipe's `sandbox.token_file`; None if it names none."""
    if not file:
        return None
    words = Path(file).read_text(encoding="utf-8").split()
    if len(words) != 1:
        raise ValueError(f"{file} (sandbox.token_file) must hold one token and nothing else; a node's TOML isn't meant")
    return words[0]

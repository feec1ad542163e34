"""What all rollouts of one process share: the chat, the sandbox's client, the graders. Made once, never per rollout.

verl makes an agent loop for each rollout; what they need is kept here for as long as the process lives, so that a
thousand rollouts leave no more tasks, connections and processes behind than one.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from cleaner_rl.purify import Phase
from cleaner_rl.rollout import Chat, Purifier, RolloutBudget, Sampling, TokenModel, Toolbox, toolbox_of
from cleaner_rl.rollout.graders import standard_graders
from cleaner_rl.sandbox.client import SandboxClient
from cleaner_rl.sandbox.limits import Limits
from cleaner_rl.sandbox.requests import SessionRequest
from cleaner_rl.tasks import Grader, MathPool, Prompt, load_prompt
from cleaner_rl.tools import CallFormat, call_format
from cleaner_rl.train.plan import Plan
from cleaner_rl.train.recipe import Recipe
from cleaner_rl.trajectory import Mode, Seeds


@dataclass(frozen=True)
class Workshop:
    """One process's share of the tools of a run."""

    recipe: Recipe
    prompt: Prompt
    chat: Chat
    call_format: CallFormat
    sandbox: SandboxClient
    graders: Mapping[str, Grader]

    def budget(self, phase: Phase) -> RolloutBudget:
        """What a rollout may use."""
        budget = self.recipe.budget
        turns = (budget.evaluation_turns if phase is Phase.EVALUATION else 0) or budget.turns
        return RolloutBudget(turns, budget.response_tokens, budget.seconds or None, budget.lookahead_tokens)

    def purifier(self, phase: Phase, seeds: Seeds, step: int) -> Purifier | None:
        """How a rollout is purified; None if it isn't."""
        method, purify = self.recipe.method, self.recipe.purify
        if not method.edits:
            return None
        chosen = Purifier(Mode.LIVE if method.live else Mode.HINDSIGHT, purify.policy(), phase)
        rest = purify.rest() if method.live else None
        if rest is not None and not chosen.applies(seeds, step):
            chosen = Purifier(Mode.HINDSIGHT, rest, phase)
        return chosen if chosen.applies(seeds, step) else None

    @cached_property
    def toolbox(self) -> Toolbox:
        """Where calls run; made once, for a tool may have a database to look at."""
        limits = Limits(cpu_seconds=self.recipe.sandbox.cpu_seconds, memory_mb=self.recipe.sandbox.memory_mb)
        preload = "own" if self.recipe.sandbox.packages else "science"
        return toolbox_of(self.prompt, self.sandbox, SessionRequest(preload, limits))

    def model(self, policy: Any, sampling: Sampling, window: int) -> TokenModel:
        """A policy and the chat as one."""
        return TokenModel(policy, self.chat, self.call_format, window=window, sampling=sampling)


_OPEN: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[Workshop]] = WeakKeyDictionary()


async def workshop(plan: Plan, tokenizer: Any) -> Workshop:
    """This process's workshop, opened by the first who asks. A process serves one run."""
    loop = asyncio.get_running_loop()
    if loop not in _OPEN:
        _OPEN[loop] = loop.create_task(_open(plan, tokenizer))
    return await asyncio.shield(_OPEN[loop])


async def _open(plan: Plan, tokenizer: Any) -> Workshop:
    recipe = plan.recipe
    prompt = load_prompt(recipe.prompt)
    chat = Chat(tokenizer, prompt.tools, in_template=prompt.in_template, options=recipe.model.template)
    token = _token(recipe.sandbox.token_file)
    sandbox = await SandboxClient(plan.sandbox, token=token).__aenter__()

    graders = standard_graders(sandbox, MathPool())
    # What was loaded until now, torch and verl with it, lives as long as the process. Left to the collector it would be
    # walked through again and again, and each time all rollouts of the process would stand still.
    gc.collect()
    gc.freeze()
    return Workshop(recipe, prompt, chat, call_format(prompt.call_format), sandbox, graders)


def _token(file: str) -> str | None:
    if not file:
        return None
    words = Path(file).read_text(encoding="utf-8").split()
    if len(words) != 1:
        raise ValueError(f"{file} (sandbox.token_file) must hold one token and nothing else; a node's TOML isn't meant")
    return words[0]

"""A stand-in for an engine that answers by a rule, and all that an evaluation needs around it; the sandbox is real."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import numpy as np

from cleaner_rl.rollout import Completion, Finish, RolloutBudget, RolloutRunner, Sampling, StatelessToolEnv, TokenModel
from cleaner_rl.tasks import ChoiceGrader, Grader, Message, Task, load_prompt
from cleaner_rl.tools import call_format
from cleaner_rl.trajectory import Ids, Scores, TokenSpan
from cleaner_sandbox import BARE, Limits, Node, NodeConfig
from tests.rollout.chats import chat, tokenizer
from tests.rollout.scripted import call

RIGHT, WRONG = "So it is \\boxed{C}.", "So it is \\boxed{A}."
Rule = Callable[[str, int], str]
"""(the whole context as text, the request's seed) to what the model writes; it may raise."""


def tasks(count: int, name: str = "set") -> list[Task]:
    return [Task(f"{name}/{n}", (Message("user", f"How many are {n} and 2?"),), "choice", "C") for n in range(count)]


@dataclass
class RuleEngine:
    rule: Rule
    requests: list[str] = field(default_factory=list)

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
        self.requests.append(request)
        reply = self.rule(chat().vocabulary.decode(prompt_T).text, seed)
        ids = np.array([*tokenizer("qwen3").encode(reply), stop_ids[0]], np.int32)[:max_tokens]
        return Completion(ids, None, Finish.STOP if ids[-1] == stop_ids[0] else Finish.LENGTH)

    async def score(self, prefix_T: Ids, suffix_T: Ids, *, request: str) -> Scores:  # noqa: N803
        raise AssertionError("an evaluation scores nothing")


def mends(context: str, seed: int) -> str:
    """Calls with an error first; after feedback with the right call, after a result with the right answer."""
    _, _, since = context.rpartition("<|im_start|>user\nHow many")
    if "NameError" not in since and "<tool_response>" not in since:
        return call("print(unknown)")
    return call("print(3)") if "<tool_response>\n3" not in since else RIGHT


def seldom_mends(context: str, seed: int) -> str:
    """The same, but having failed it gives up two times in three."""
    reply = mends(context, seed)
    return WRONG if reply == call("print(3)") and seed % 3 else reply


@asynccontextmanager
async def runner(
    engine: RuleEngine, graders: dict[str, Grader] | None = None
) -> AsyncIterator[RolloutRunner[TokenSpan]]:
    model = TokenModel(engine, chat(), call_format("hermes"), window=20_000)
    async with Node(NodeConfig(slots=2, environments=(BARE,))) as node:
        tool_env = StatelessToolEnv(node, Limits(cpu_seconds=1.0))
        budget = RolloutBudget(turns=5, tokens=4_000)
        judges = graders if graders is not None else {"choice": ChoiceGrader()}
        yield RolloutRunner(model, tool_env, load_prompt("stateless"), judges, budget, concurrency=4)

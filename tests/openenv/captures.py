"""Rollouts as OpenEnv captures them, of a harness and a chat template of a few lines; a token is a byte."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cleaner_rl.logs import Reading
from cleaner_rl.purify import Score
from cleaner_rl.tools import call_format
from cleaner_rl.trajectory import Ids, Scores, Vocabulary

STOP = 0
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "required": [argument]}}}
    for name, argument in (("bash", "command"), ("weather", "city"))
]


@dataclass(frozen=True)
class Step:
    """One turn of the model, and what the harness answered."""

    thought: str
    name: str = ""
    arguments: dict[str, Any] | str = field(default_factory=dict)
    told: str | dict[str, Any] = ""
    """The content of the tool's message, or more of its fields."""


def shell(command: str, code: int, output: str = "", thought: str = "I look.") -> Step:
    """A command, as mini-swe-agent shows its result."""
    told = f"<returncode>{code}</returncode>\n<output>\n{output}</output>"
    return Step(thought, "bash", {"command": command}, told)


def text_of(message: dict[str, Any]) -> str:
    """What the model wrote of a message."""
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    shown = [
        f'<tool_call>\n{{"name": "{each["name"]}", "arguments": {each["arguments"]}}}\n</tool_call>' for each in calls
    ]
    return (message["content"] or "") + "".join(shown)


def rendered(messages: Sequence[dict[str, Any]]) -> list[int]:
    """The tokens of a history, open for the model's next turn."""
    parts = [
        f"<assistant>{text_of(each)}\x00\n" if each["role"] == "assistant" else f"<{each['role']}>{each['content']}\n"
        for each in messages
    ]
    return list(("".join(parts) + "<assistant>").encode())


def logprobs(ids: Sequence[int], context: Sequence[int]) -> list[float]:
    """Made-up log-probs that depend on the context."""
    found, total = [], sum(context)
    for token in ids:
        found.append(-((total * 31 + token) % 97 + 1) / 100)
        total += token
    return found


async def score(prefix_T: Ids, suffix_T: Ids) -> Scores:  # noqa: N803 - shapes are part of names
    """What an engine with these log-probs answers."""
    return Scores(np.array(logprobs(suffix_T.tolist(), prefix_T.tolist()), np.float32))


SCORE: Score = score


def entries(question: str, steps: Sequence[Step], tools: list[dict[str, Any]] | None = TOOLS) -> list[dict[str, Any]]:
    """A rollout as OpenEnv's trace entries."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": question}]
    found = []
    for number, step in enumerate(steps):
        said: dict[str, Any] = {"role": "assistant", "content": step.thought}
        if step.name:
            arguments = step.arguments if isinstance(step.arguments, str) else json.dumps(step.arguments)
            call = {"id": f"call{number}", "type": "function", "function": {"name": step.name, "arguments": arguments}}
            said["tool_calls"] = [call]
        prompt, sampled = rendered(messages), [*text_of(said).encode(), STOP]
        found.append(
            {
                "request": {"messages": list(messages), "tools": tools},
                "response": {"choices": [{"message": said, "finish_reason": "stop"}]},
                "prompt_token_ids": prompt,
                "completion_token_ids": sampled,
                "per_token_logps": logprobs(sampled, prompt),
                "loss_mask": [0] * len(prompt) + [1] * len(sampled),
                "metadata": {"node_id": f"node{number}"},
            }
        )
        messages.append(said)
        if step.name:
            told = step.told if isinstance(step.told, dict) else {"content": step.told}
            messages.append({"role": "tool", "tool_call_id": f"call{number}", **told})
    return found


def reader() -> Any:
    """A reader of such traces."""
    from cleaner_rl.train.openenv import TraceReader

    vocabulary = Vocabulary([bytes([byte]) for byte in range(256)])
    return TraceReader(vocabulary, {STOP}, call_format("hermes"), replace(Reading(), by_words=False))


class Captured:
    """A session of somebody else's factory, which has ended."""

    def __init__(self, trace: Any, reward: float | None = 1.0) -> None:
        self.trace, self.reward, self.closed, self.verified = trace, reward, False, 0

    def initial_messages(self) -> list[Any]:
        return []

    def list_tools(self) -> list[Any]:
        return []

    def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
        return name, arguments

    def wait_for_completion(self, timeout_s: float | None = None) -> int:
        return 0

    def fetch_training_trace(self) -> Any:
        return self.trace

    def verify(self, transcript: list[Any], final_state: Any | None = None) -> Any:
        from openenv.core.harness import VerifyResult

        self.verified += 1
        return VerifyResult(env_reward=self.reward, done=True)

    def close(self) -> None:
        self.closed = True

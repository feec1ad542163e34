"""The adapter to verifiers passes the contract of adapters to trainers, on the branches of verifiers' own traces.

A trainer on verifiers takes a branch of a trace: its token ids, sampled mask, log-probs and advantages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from cleaner_rl.contracts.trainers import ROLLOUTS, Rollout, Trained, TrainerContract
from cleaner_rl.train.rows import recovery_view
from cleaner_rl.trajectory import Key


@pytest.mark.timeout(120)
class TestVerifiers(TrainerContract):
    def train(self, groups: Sequence[Sequence[Rollout]]) -> Sequence[Sequence[Trained]]:
        return [_trained(group) for group in groups]


def _trained(group: Sequence[Rollout]) -> list[Trained]:
    import verifiers.v1 as vf

    from cleaner_rl.train.verifiers import CleanerEnv

    class Given(CleanerEnv):
        """Is given finished rollouts in the place of those that it reads from traces."""

        async def _finished(self, trace: Any, key: Key) -> Rollout:
            return group[key.rollout]

    env = Given(vf.resolve_env_config({"taskset": {"id": "cleaner-sums"}, "rollouts": ROLLOUTS}))
    task = next(iter(env.taskset))
    described = vf.TraceTask(type="SumTask", data=task.data, key=task.key)
    agent = vf.AgentConfig(client=vf.TrainClientConfig(api_key_var="NO_KEY"), model="none")
    traces = [vf.Trace(task=described, agent=vf.AgentInfo(config=agent), nodes=_nodes(each), ok=True) for each in group]
    episode = vf.Episode(task=described, traces=traces)
    asyncio.run(env.finalize(task, episode))
    return [_row(trace) for trace in episode.traces if trace.agent.trainable]


def _row(trace: Any) -> Trained:
    (branch,) = trace.branches
    # Lists, and arrays from verifiers 0.4.1 on.
    sampled, logprobs, given = (
        np.asarray(each).tolist() for each in (branch.sampled_mask, branch.logprobs, branch.advantages)
    )
    start = sampled.index(True)
    mask = sampled[start:]
    advantages = {each for each, there in zip(given[start:], mask, strict=True) if there}
    assert len(advantages) == 1
    ids = np.asarray(branch.token_ids).tolist()
    return Trained(ids, [int(each) for each in mask], logprobs[start:], advantages.pop())


def _nodes(rollout: Rollout) -> list[Any]:
    """The nodes of a trace as it was sampled: without the edits of the rollout."""
    import verifiers.v1 as vf

    raw = recovery_view(rollout) or rollout
    nodes = [_node(vf.UserMessage(content=raw.prompt.text), raw.prompt.ids.tolist(), None)]
    for number, turn in enumerate(raw.turns):
        calls = [
            vf.ToolCall(id=f"call{number}", name=call.name, arguments='{"code": "1"}') for call in turn.calls
        ] or None
        spans = [turn.reasoning, *([turn.action] if turn.action is not None else [])]
        ids = [each for span in spans for each in span.ids.tolist()]
        logprobs = [each for span in spans if span.sampled is not None for each in span.sampled.logprobs.tolist()]
        nodes.append(_node(vf.AssistantMessage(content=turn.text, tool_calls=calls), ids, len(nodes) - 1, logprobs))
        if turn.observation is not None:
            said = vf.ToolMessage(tool_call_id=f"call{number}", content=turn.observation.text)
            nodes.append(_node(said, turn.observation.ids.tolist(), len(nodes) - 1))
    return nodes


def _node(message: Any, ids: list[int], parent: int | None, logprobs: Sequence[float] = ()) -> Any:
    import verifiers.v1 as vf

    sampled = bool(logprobs)
    return vf.MessageNode(
        parent=parent, message=message, sampled=sampled, token_ids=ids, mask=[sampled] * len(ids), logprobs=[*logprobs]
    )

"""What verl's processes load for the comparison: who takes which step; the same tool, parser and grader."""

from __future__ import annotations

import json
import os
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import transfer_queue as tq
from tensordict.tensorclass import NonTensorData
from transfer_queue import KVBatchMeta
from transformers import AutoTokenizer
from verl.experimental.agent_loop.tool_parser import FunctionCall, ToolParser
from verl.tools.base_tool import BaseTool
from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse
from verl.trainer.ppo.v1 import AgentLoopManagerTQ
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from cleaner_rl.rollout.graders import standard_graders
from cleaner_rl.tasks import MathPool, RewardScale, from_verl, grade, load_prompt
from cleaner_rl.tools import ToolSet, call_format, feedback
from cleaner_rl.train.verl.manager import CleanerManager
from cleaner_rl.train.verl.plan import RunPlan, read_plan
from cleaner_rl.train.verl.runner import shared_runner
from cleaner_rl.train.verl.sampler import CleanerSampler
from cleaner_rl.trajectory import Key

RUN = "CLEANER_STOCK_RUN"
"""The environment's name for the run's folder."""
STOCK = "tool_agent"
PARSER = "cleaner-stock"
BATCHES = "batches.pickle"


def ours(step: int) -> bool:
    """Whose step it is."""
    return step % 2 == 0


class TurnManager(CleanerManager):
    """ToolSession every other step to verl's own loop."""

    def generate_sequences(self, prompts: Any) -> None:
        """Start the rollouts of a batch."""
        if ours(int(prompts["global_steps"])):
            super().generate_sequences(prompts)
        else:
            prompts["agent_name"] = NonTensorData(STOCK)
            AgentLoopManagerTQ.generate_sequences(self, prompts)


@dataclass(frozen=True)
class Line:
    """One row of a batch, as it goes on to the update."""

    step: int
    index: int
    session: int
    prompt: list[int]
    response: list[int]
    mask: list[int]
    reward: float


class TurnSampler(CleanerSampler):
    """Takes verl's rows as they are, and ours our way; writes both down."""

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[KVBatchMeta, dict[str, Any]]:
        """A batch, of whoever's step it is."""
        self._step = global_steps
        return super().sample(global_steps, partition_id, batch_size)

    def _materialize_batch(
        self, partition_id: str, selected_prompt_uids: list[str], partition_snapshot: dict[str, dict[str, Any]]
    ) -> KVBatchMeta:
        kind: Any = CleanerSampler if ours(self._step) else ReplayBuffer
        batch: KVBatchMeta = kind._materialize_batch(self, partition_id, selected_prompt_uids, partition_snapshot)
        names = ["prompts", "responses", "response_mask", "rm_scores", "index"]
        data = tq.kv_batch_get(keys=batch.keys, partition_id=partition_id, select_fields=names)
        tensors = [data[name].unbind() for name in names[:4]]
        indices = [int(getattr(index, "data", index)) for index in data["index"]]
        lines = [
            Line(
                self._step,
                index,
                int(key.split("_")[1]),
                prompt.tolist(),
                response.tolist(),
                mask.tolist(),
                float(scores.sum()),
            )
            for key, index, prompt, response, mask, scores in zip(batch.keys, indices, *tensors, strict=True)
        ]
        with (read_plan(str(self.sampler_kwargs.folder)).folder / BATCHES).open("ab") as file:
            pickle.dump(lines, file)
        return batch


def written(folder: Path) -> list[Line]:
    """All rows of a run."""
    found: list[Line] = []
    with (folder / BATCHES).open("rb") as file:
        while True:
            try:
                found += pickle.load(file)
            except EOFError:
                return found


# ---- the same tool, parser and grader for verl's loop


def _plan() -> RunPlan:
    return read_plan(os.environ[RUN])


@ToolParser.register(PARSER)
class OurParser(ToolParser):  # type: ignore[misc]
    """Our call format as a parser of verl's: a call is its place in the turn's text, for the tool to read."""

    async def extract_tool_calls(self, responses_ids: list[int], tools: Any = None) -> tuple[str, list[FunctionCall]]:  # noqa: ARG002
        """The text, and its calls."""
        text = _text(self.tokenizer, responses_ids)
        prompt = load_prompt(_plan().recipe.tasks.prompt)
        calls = call_format(prompt.call_format).parse(text, ToolSet(prompt.tool)).calls
        arguments = [json.dumps({"text": text, "place": place}) for place in range(len(calls))]
        return text, [FunctionCall(name=prompt.tool.name, arguments=each) for each in arguments]


class SandboxTool(BaseTool):  # type: ignore[misc]
    """The run's sandbox as a tool of verl's."""

    def __init__(self, config: dict[str, Any], tool_schema: Any) -> None:  # noqa: ARG002
        recipe = _plan().recipe
        self._prompt = load_prompt(recipe.tasks.prompt)
        self._tokenizer = AutoTokenizer.from_pretrained(recipe.model.path)
        super().__init__(config, _Schema.model_validate(self._prompt.tool.schema))

    async def execute(
        self, instance_id: str, parameters: dict[str, Any], **_more: Any
    ) -> tuple[ToolResponse, float, dict[str, Any]]:
        """Run one call."""
        calls = call_format(self._prompt.call_format).parse(parameters["text"], ToolSet(self._prompt.tool)).calls
        runner = await shared_runner(_plan(), self._tokenizer, None)  # type: ignore[arg-type]  # nothing is sampled
        async with runner.tool_env.open(Key("stock", 0, instance_id, 0)) as tool_session:
            (result,) = await tool_session.run([calls[parameters["place"]]])
        return ToolResponse(text=feedback(result)), 0.0, {}


class _Schema(OpenAIFunctionToolSchema):  # type: ignore[misc]
    """The schema in the order in which it is written: verl's own would write its keys in another."""

    def model_dump(self, **_options: Any) -> dict[str, Any]:
        """As plain values."""
        return dict(load_prompt(_plan().recipe.tasks.prompt).tool.schema)


async def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any]) -> float:
    """The reward of a response by the task's own grader, for verl's reward workers."""
    row = {
        "data_source": data_source,
        "reward_model": {"style": "rule", "ground_truth": ground_truth},
        "extra_info": extra_info,
    }
    last = solution_str.rpartition("assistant\n")[2]
    answer = "" if "<tool_call>" in last else last
    verdict = await grade(from_verl(row), answer, _graders())
    reward = verdict.reward(RewardScale.SIGNED)
    assert reward is not None, verdict
    return reward


_made: dict[str, Any] = {}


def _graders() -> dict[str, Any]:
    if not _made:
        _made.update(standard_graders(None, MathPool()))  # type: ignore[arg-type]
    return _made


def _text(tokenizer: Any, ids: list[int]) -> str:
    end = tokenizer.eos_token_id
    return str(tokenizer.decode(ids[:-1] if ids and ids[-1] == end else ids))

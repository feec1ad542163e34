"""Our glue ids beside those of verl's own builder, over the same turns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.models import write_tiny_qwen3
from cleaner_rl.rollout import ChatRenderer
from cleaner_rl.tasks import Message
from cleaner_rl.tools import ToolSet, python_tool

TURN = 'I add them.\n<tool_call>\n{"name": "python", "arguments": {"code": "print(1+2)"}}\n</tool_call>'


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(write_tiny_qwen3(tmp_path_factory.mktemp("model")))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("results", [["3"], ["3", "NameError: name 'y' is not defined"]], ids=["one", "two"])
def test_a_history_is_id_for_id_what_verl_would_have_built(tokenizer: Any, results: list[str]) -> None:
    from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

    tool = python_tool()
    chat = ChatRenderer(tokenizer, ToolSet(tool))
    schema = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    tools = [{"type": "function", "function": schema}]
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 1+2?"}]
    builder = create_continuous_token_builder(tokenizer, hf_model_type="qwen3")

    prompt = chat.prompt([Message(each["role"], each["content"]) for each in messages])
    assert prompt.ids.tolist() == builder.build_initial_tokens(messages, tools=tools)

    turn = np.array([*tokenizer.encode(TURN, add_special_tokens=False), chat.end_id], np.int32)
    observation = chat.observation(turn, results)
    before = [*messages, {"role": "assistant", "content": TURN}]
    after = [*before, *[{"role": "tool", "content": result} for result in results]]
    merged = builder.merge_context_tokens(before, after, [*prompt.ids.tolist(), *turn.tolist()], tools=tools)
    assert [*prompt.ids, *turn, *observation.ids] == list(merged.token_ids)

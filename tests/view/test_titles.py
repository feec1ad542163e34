from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner_rl.view.titles import LONGEST, source_of, title_of


@pytest.mark.parametrize(
    "prompt",
    [
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nFix it.\nNow.<|im_end|>\n<|im_start|>assistant\n",
        "<|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nFix it.<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
        "<bos><start_of_turn>user\nFix it.<end_of_turn>\n<start_of_turn>model\n",
        "<s>[INST] Fix it. [/INST]",
        "system: You are a coding agent.\nuser: Fix it.\n",
        "system: You are a coding agent.\nhuman: Fix it.\nNow.\n",
        "Fix it.\n",
        "user: An example.\nassistant: Done.\nuser: Fix it.\n",
        "user: <environment_context>\n  <cwd>/workspace</cwd>\n</environment_context>\n\nFix it.\n",
        "user: <task>\n## Fix it.\n</task>\n",
    ],
)
def test_the_title_is_the_first_line_of_what_the_user_said_last(prompt: str) -> None:
    assert title_of(prompt, {}) == "Fix it."


def test_messages_are_believed_before_the_text() -> None:
    parts = [{"type": "text", "text": "Fix it."}, {"type": "image"}]
    messages = [{"role": "user", "content": "One."}, {"role": "user", "content": parts}, {"role": "tool"}]
    assert title_of("something else", {"messages": messages}) == "Fix it."
    assert title_of("Fix it.", {"messages": [{"role": "system", "content": "Be brief."}]}) == "Fix it."


def test_a_long_title_is_cut_and_none_is_empty() -> None:
    title = title_of("word " * 100, {})
    assert len(title) == LONGEST
    assert title.endswith("word…")
    assert title_of("\n--- \n", {}) == ""


def test_the_source_is_file_and_line() -> None:
    assert source_of({"log": {"source": {"file": "logs/a.jsonl", "line": 7, "id": "x"}}}) == "logs/a.jsonl:7"
    assert source_of({"log": {"source": {"file": "logs/a.json", "line": None}}}) == "logs/a.json"
    assert source_of({"log": {"format": "openai"}}) is None
    assert source_of({}) is None


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["role", "content", "text", "source"]), inner),
)


@given(st.text(), JSON, JSON)
def test_whatever_a_store_holds_is_no_error(prompt: str, messages: Any, log: Any) -> None:
    assert len(title_of(prompt, {"messages": messages})) <= LONGEST
    source_of({"log": log})

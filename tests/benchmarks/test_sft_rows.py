"""The comparison of `benchmarks.sft_rows` finds what it is for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.sft_rows import compared, judged
from cleaner_rl.logs.rendering import Template

ARGUMENTS = {"code": 'print("a")\nprint(2)', "n": 3}
CALL: dict[str, Any] = {
    "role": "assistant",
    "content": "I print.",
    "tool_calls": [{"id": "1", "type": "function", "function": {"name": "python", "arguments": ARGUMENTS}}],
}


@pytest.mark.parametrize(
    ("learnt", "mask", "found"),
    [
        (f"I print. {json.dumps(ARGUMENTS)}", 1, ["calls"]),
        (f"I print. {ARGUMENTS['code']} 3", 1, ["calls"]),
        (f"I print. {json.dumps(json.dumps(ARGUMENTS))}", 1, ["calls", "wrong", "quoted_twice"]),
        ("I print.", 1, ["calls", "wrong"]),
        (json.dumps(ARGUMENTS), 1, ["calls", "wrong_words"]),
        ("", 0, ["calls"]),
    ],
)
def test_a_turn_is_compared_with_what_is_learnt(learnt: str, mask: int, found: list[str]) -> None:
    assert list(judged(CALL, mask, learnt)) == found


def test_a_turn_out_of_the_loss_that_is_learnt_is_a_leak() -> None:
    said = "This approach fails, and nobody should learn these many words of it at all."
    assert list(judged({"role": "assistant", "content": said}, 0, f"{said}<|im_end|>")) == ["leaked"]
    assert list(judged({"role": "assistant", "content": said}, 0, "Done.")) == []


def test_a_row_that_the_template_refuses_is_counted_apart() -> None:
    class Refusing:
        def apply_chat_template(self, *_: Any, **__: Any) -> str:
            raise ValueError("Conversation roles must alternate")

    row = {"messages": [CALL], "tools": None, "loss_mask": [1]}
    assert compared([row], Template(Refusing())) == {"rows": 1, "refused": 1}

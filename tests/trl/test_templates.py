"""Chat templates as TRL ships them, and those of `renderers`: exact, or refused with the reason."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.templates import discovered, judge, stand_in

EXACT = {
    "qwen2_5": "hermes",
    "qwen3": "hermes",
    "qwen3_instruct_2507": "hermes",
    "qwen3_5_think": "xml",
    "qwen3_6": "xml",
    "qwen3_8": "xml",
    "nemotron_3_nano": "xml",
    "llama3_1": "llama",
    "llama3_2": "llama",
    "gptoss": "harmony",
    "deepseekv3": "deepseek",
    "glm4moe": "glm",
}


@pytest.mark.parametrize("name", EXACT)
def test_a_template_of_trl_is_exact(name: str) -> None:
    spec = find_spec("trl")
    assert spec is not None
    assert spec.origin is not None
    template = (Path(spec.origin).parent / "chat_templates" / f"{name}.jinja").read_text(encoding="utf-8")
    tokenizer = stand_in(name, template)
    tokenizer.chat_template = template
    row = judge(name, "trl", "stand-in", tokenizer)
    assert (row.outcome, row.call_format) == ("exact", EXACT[name]), row.said


@pytest.mark.parametrize(("family", "call_format"), [("qwen3.5", "xml"), ("glm-5", "glm"), ("nemotron-3.5", "xml")])
def test_a_template_of_renderers_is_exact_and_its_bridge_agrees(family: str, call_format: str) -> None:
    row = judge(family, "renderers", "stand-in", discovered(family), family)
    assert (row.outcome, row.call_format) == ("exact", call_format), row.said


@pytest.mark.parametrize(
    ("family", "said"), [("minimax-m2", "no call format reads"), ("qwen-99", "'qwen-99' of renderers doesn't fit")]
)
def test_what_cannot_be_used_is_refused_with_the_reason(family: str, said: str) -> None:
    row = judge(family, "renderers", "stand-in", discovered(family), family)
    assert row.outcome == "refused"
    assert said in row.said

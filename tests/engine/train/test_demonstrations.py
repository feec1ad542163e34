"""What a cold start learns from: rendered as the model's template does it, and from the model's own words alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.models import write_tiny_qwen3

CALL = '<tool_call>\n{"name": "python", "arguments": {"code": "print(1+2)"}}\n</tool_call>'
MESSAGES = [
    {"role": "system", "content": "Use Python."},
    {"role": "user", "content": "Add 1 and 2."},
    {"role": "assistant", "content": CALL},
    {"role": "tool", "content": "3"},
    {"role": "assistant", "content": "\\boxed{3}"},
]
PARAMETERS = {"type": "object", "required": ["code"], "properties": {"code": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "python", "description": "Runs.", "parameters": PARAMETERS}}]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("tools", [TOOLS, json.dumps(TOOLS)], ids=["list", "text"])
def test_only_the_models_own_words_are_learnt(tmp_path: Path, tools: Any) -> None:
    from omegaconf import OmegaConf
    from transformers import AutoTokenizer

    from cleaner_rl.train.launch.sft_data import MaskedSFTDataset

    tokenizer: Any = AutoTokenizer.from_pretrained(write_tiny_qwen3(tmp_path / "model"))
    pq.write_table(pa.Table.from_pylist([{"messages": MESSAGES, "tools": tools}]), tmp_path / "rows.parquet")
    settings = OmegaConf.create({"pad_mode": "no_padding", "max_length": 512, "truncation": "error"})

    row = MaskedSFTDataset([str(tmp_path / "rows.parquet")], tokenizer, settings)[0]

    ids, mask = row["input_ids"].tolist(), row["loss_mask"].tolist()
    assert tokenizer.decode(ids) == tokenizer.apply_chat_template(MESSAGES, tools=TOOLS, tokenize=False)
    learnt = tokenizer.decode([token for token, learn in zip(ids, mask, strict=True) if learn])
    assert learnt == f"{CALL}<|im_end|>\n\\boxed{{3}}<|im_end|>\n"

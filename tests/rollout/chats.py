"""A real byte-level tokenizer, trained here, and templates shaped like those of known models."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from cleaner_rl.rollout import ChatRenderer
from cleaner_rl.tools import ToolSet, python_tool

TEMPLATES = Path(__file__).parent / "templates"
TOOLS = ToolSet(python_tool())
TURNS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
FRAMES = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
"""Added tokens of Qwen3 that are not called special, and are control tokens all the same."""
TEXT = [
    "user\nassistant\nsystem\n\n# Tools\n\nprint(1 + 1)\nValueError: invalid literal for int() with base: 'x'.\n\n\n",
    'Traceback (most recent call last):\n  File "<string>", line 1, in <module>\n{"name": "python", "arguments": {}}',
] * 20


@cache
def tokenizer(template: str, frames: bool = True) -> Any:
    """With a template of this name; `frames`: whether the frames around calls and results are tokens."""
    from transformers import PreTrainedTokenizerFast

    bare = Tokenizer(models.BPE())
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bare.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bare.train_from_iterator(TEXT, trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet, show_progress=False))
    bare.add_special_tokens([AddedToken(each, special=True, normalized=False) for each in TURNS])
    if frames:
        bare.add_tokens([AddedToken(each, special=False, normalized=False) for each in FRAMES])
    made = PreTrainedTokenizerFast(tokenizer_object=bare, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    made.chat_template = (TEMPLATES / f"{template}.jinja").read_text()
    return made


@cache
def chat(template: str = "qwen3", frames: bool = True, **options: bool) -> ChatRenderer:
    return ChatRenderer(tokenizer(template, frames), TOOLS, options=options)

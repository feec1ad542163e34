"""Supervised training on demonstrations: plain torch, minutes on two cores, loss on the model's own words.

The toy model is a tiny Qwen3 with random weights, or SmolLM2-135M, a real language model, which learns the format.

The sequences are put together by the same `ChatRenderer` that rollouts use, from the same pieces: the prompt, the ids
of the turn with their end-of-turn token, the observation. So what is trained on is, id for id, what rollouts hold.

Limits: bitwise the same result only for the same number of threads and the same versions of torch and tokenizers.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click
import numpy as np
import numpy.typing as npt

from benchmarks.models import TEMPLATE, qwen3, smollm2, train_tokenizer
from benchmarks.toy.demonstrations import Demonstration, texts
from benchmarks.toy.library import OPERATIONS, SUFFIXES
from benchmarks.toy.questions import task
from benchmarks.toy.regimes import Regime
from cleaner_rl.rollout import ChatRenderer
from cleaner_rl.tasks import Message
from cleaner_rl.tools import ToolSet, derive_seed

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

IGNORED = -100


@dataclass(frozen=True, slots=True)
class Lessons:
    """Size of the toy model and length of its training."""

    demonstrations: int = 4_000
    epochs: int = 5
    """0: random weights, for a cold start to train."""
    batch: int = 32
    lr: float = 3e-3
    width: int = 128
    layers: int = 3
    heads: int = 4
    vocabulary: int = 1024
    longest: int = 24
    """Characters of a token at most: phrases are tokens, so that a trajectory has a few hundred of them."""
    apart: bool = False
    """Whether both parts of a function's name are tokens of their own, so that it is easily read off a hint."""
    pretrained: bool = False
    """Whether SmolLM2-135M learns instead of a new model; its size and its vocabulary are its own."""
    window: int = 0
    """Tokens of a demonstration that are learnt from, at most; 0 for all."""
    seed: int = 0

    def to_json(self) -> dict[str, object]:
        """As JSON values; without what is as it always was, so that folders keep their names."""
        return {name: value for name, value in asdict(self).items() if value or name not in LATER}


LATER = ("apart", "pretrained", "window")
SMALL = Lessons(epochs=6, batch=8, lr=2e-3, width=96, apart=True)
"""For whoever trains on: every step of every run pays for a model's size."""
SMOLLM2 = Lessons(demonstrations=480, epochs=1, batch=8, lr=3e-4, pretrained=True, window=640)
"""Some minutes for a real language model: it can read and write, and lacks the format and the library."""


@dataclass(frozen=True, slots=True, eq=False)
class Lesson:
    """One demonstration as ids, and which of them the model is trained on."""

    ids: npt.NDArray[np.int64]
    own: npt.NDArray[np.bool_]

    def first(self, count: int) -> Lesson:
        """So many ids of it; all for 0."""
        return Lesson(self.ids[:count], self.own[:count]) if count else self


def vocabulary(made: Sequence[Demonstration], regime: Regime, lessons: Lessons) -> PreTrainedTokenizerFast:
    """A vocabulary of the phrases that will be said, those of the prompt and of the template among them."""
    apart = [f"(?:{'|'.join(OPERATIONS)})(?=_)", f"_(?:{'|'.join(SUFFIXES)})"] if lessons.apart else []
    prompts = [regime.prompt.messages(task(each.question, regime.name)) for each in made]
    return phrases(texts(made), prompts, ToolSet(regime.prompt.tool), lessons, apart)


def phrases(
    said: Sequence[str],
    prompts: Sequence[Sequence[Message]],
    tools: ToolSet,
    lessons: Lessons,
    apart: Sequence[str] = (),
) -> PreTrainedTokenizerFast:
    """A vocabulary of the phrases of turns and results and of rendered prompts; `apart` as in `train_tokenizer`."""
    template = TEMPLATE.read_text(encoding="utf-8")
    plain = train_tokenizer([], 512)
    plain.chat_template = template
    chat = ChatRenderer(plain, tools)
    rendered = [chat.prompt(each).text for each in prompts]
    tokenizer = train_tokenizer([*said, *rendered], lessons.vocabulary, longest=lessons.longest, apart=apart)
    tokenizer.chat_template = template
    return tokenizer


def encode(made: Demonstration, regime: Regime, chat: ChatRenderer, tokenizer: PreTrainedTokenizerFast) -> Lesson:
    """A demonstration as a rollout would hold it."""
    prompt = regime.prompt.messages(task(made.question, regime.name))
    return lesson(prompt, made.turns, made.results, chat, tokenizer)


def lesson(
    prompt: Sequence[Message],
    turns: Sequence[str],
    results: Sequence[str],
    chat: ChatRenderer,
    tokenizer: PreTrainedTokenizerFast,
) -> Lesson:
    """Turns and what was answered to them, as a rollout would hold them."""
    pieces = [(chat.prompt(prompt).ids, False)]
    for number, turn in enumerate(turns):
        ids = np.array([*tokenizer.encode(turn, add_special_tokens=False), chat.end_id], np.int32)
        pieces.append((ids, True))
        if number < len(results):
            pieces.append((chat.observation(ids, [results[number]]).ids, False))
    return Lesson(
        np.concatenate([ids for ids, _ in pieces]).astype(np.int64),
        np.concatenate([np.full(len(ids), own) for ids, own in pieces]),
    )


def train_model(
    made: Sequence[Demonstration], regime: Regime, lessons: Lessons
) -> tuple[PreTrainedModel, PreTrainedTokenizerFast, list[float]]:
    """A model and its tokenizer, and the mean loss of each epoch."""
    model, tokenizer = smollm2() if lessons.pretrained else _new(made, regime, lessons)
    chat = ChatRenderer(tokenizer, ToolSet(regime.prompt.tool))
    sequences = [encode(each, regime, chat, tokenizer).first(lessons.window) for each in made]
    return model, tokenizer, teach(model, sequences, lessons, tokenizer.pad_token_id)


def teach(model: PreTrainedModel, sequences: Sequence[Lesson], lessons: Lessons, pad: int) -> list[float]:
    """Train a model on lessons, and return the mean loss of each epoch."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=lessons.lr, betas=(0.9, 0.98), weight_decay=0.01)
    steps = max(1, lessons.epochs * math.ceil(len(sequences) / lessons.batch))
    warm = max(1, steps // 20)
    # Every token weighs the same: a mean over each batch would favour short demonstrations, which are those without
    # a mistake.
    usual = lessons.batch * sum(int(each.own.sum()) for each in sequences) / len(sequences)

    def rate(step: int) -> float:
        return min(1.0, (step + 1) / warm) * (0.5 + 0.5 * math.cos(math.pi * min(1.0, step / steps)))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    halved = lessons.pretrained and has_matrix_units()
    losses: list[float] = []
    model.train()
    for epoch in range(lessons.epochs):
        label = f"epoch {epoch + 1} of {lessons.epochs}" + (f", loss was {losses[-1]:.3f}" if losses else "")
        sums = []
        with click.progressbar(length=steps // lessons.epochs, label=label, file=sys.stderr) as bar:
            for batch in batches(sequences, lessons.batch, lessons.seed, epoch):
                with torch.autocast("cpu", torch.bfloat16, enabled=halved):
                    loss = summed_loss(model, batch, pad) / usual
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
                sums.append(loss.item())
                bar.update(1)
        losses.append(sum(sums) / len(sums))
    model.eval()
    return losses


def has_matrix_units() -> bool:
    """Return whether bfloat16 is quicker here than float32; without such units it takes three times as long.

    Tiny models don't notice.
    """
    import torch

    return bool(torch.cpu.get_capabilities().get("amx_bf16"))


def _new(
    made: Sequence[Demonstration], regime: Regime, lessons: Lessons
) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    tokenizer = vocabulary(made, regime, lessons)
    model = qwen3(tokenizer, width=lessons.width, layers=lessons.layers, heads=lessons.heads, seed=lessons.seed)
    return model, tokenizer


def batches(sequences: Sequence[Lesson], size: int, seed: int, epoch: int) -> Iterator[list[Lesson]]:
    """Yield all sequences once, those of like length together, in random order."""
    draw = random.Random(derive_seed(seed, "epoch", epoch))
    order = sorted(range(len(sequences)), key=lambda each: (len(sequences[each].ids) // 32, draw.random()))
    chosen = [order[start : start + size] for start in range(0, len(order), size)]
    draw.shuffle(chosen)
    for batch in chosen:
        yield [sequences[each] for each in batch]


def summed_loss(model: PreTrainedModel, batch: Sequence[Lesson], pad: int) -> torch.Tensor:
    """Return the loss, summed over the model's own tokens; the vocabulary is only looked at where it counts."""
    import torch

    longest = max(len(each.ids) for each in batch)
    ids_BT = np.full((len(batch), longest), pad, np.int64)  # noqa: N806 - the shape is part of the name
    labels_BT = np.full((len(batch), longest), IGNORED, np.int64)  # noqa: N806
    for row, each in enumerate(batch):
        ids_BT[row, : len(each.ids)] = each.ids
        labels_BT[row, : len(each.ids)][each.own] = each.ids[each.own]
    # Padding stands at the end, where nothing that counts looks: no mask, and the quick causal attention.
    hidden = model.model(input_ids=torch.from_numpy(ids_BT), use_cache=False).last_hidden_state[:, :-1]
    wanted = torch.from_numpy(labels_BT)[:, 1:]
    counts = wanted != IGNORED
    return torch.nn.functional.cross_entropy(model.lm_head(hidden[counts]), wanted[counts], reduction="sum")

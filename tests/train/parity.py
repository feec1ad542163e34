"""One batch of rows and the loss that their definition gives, to compare the losses of trainers with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np

from cleaner_rl.train.rows import Graded, RowConfig, TrainRow, group_rows
from cleaner_rl.trajectory import Key, Scores, StopReason
from tests.builders import answered, failed, trajectory, worked

CLIP_LOW, CLIP_HIGH = 0.2, 0.28
VOCABULARY = 64


def batch() -> list[list[Graded]]:
    """Two groups of four rollouts, with failed calls, rewards that differ, and log-probs that make ratios clip."""
    draw = Random(7)
    return [
        [_rollout(task, number, reward, draw) for number, reward in enumerate(rewards)]
        for task, rewards in (("a", (1.0, -1.0, -1.0, 0.5)), ("b", (1.0, 1.0, -1.0, -0.25)))
    ]


def _rollout(task: str, number: int, reward: float, draw: Random) -> Graded:
    turns = ((failed(),) if number % 2 else ()) + (worked(), answered())
    made = replace(
        trajectory(*turns),
        key=Key("parity", 1, task, number),
        reward=reward,
        success=reward > 0,
        stop_reason=StopReason.ANSWERED,
    )

    def small(span: Any) -> Any:
        ids = np.array([draw.randrange(3, VOCABULARY) for _ in span.ids], np.int32)
        logprobs = np.array([-np.log(VOCABULARY) + draw.uniform(-0.5, 0.5) for _ in ids], np.float32)
        return replace(span, ids=ids, sampled=None if span.sampled is None else Scores(logprobs, 1))

    turns_small = tuple(turn.with_spans(small) for turn in made.turns)
    return replace(made, prompt=small(made.prompt), turns=turns_small)


def rows(groups: Sequence[Sequence[Graded]]) -> list[TrainRow]:
    """The rows of the batch, with failed turns masked where the advantage is positive."""
    return [row for group in groups for row in group_rows(group, RowConfig(mask_failed=True)).rows]


def tiny_model(vocabulary: int = VOCABULARY) -> Any:
    """A GPT-2 of a few thousand parameters in float64, without dropout."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(3)
    off = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    config = GPT2Config(vocab_size=vocabulary, n_embd=32, n_layer=1, n_head=2, n_positions=512, **off)
    return GPT2LMHeadModel(config).double()


def token_logprobs(model: Any, row: TrainRow) -> Any:
    """The model's log-probs of a row's response."""
    import torch

    ids = torch.tensor([*row.prompt_ids.tolist(), *row.response_ids.tolist()])
    logits = model(input_ids=ids[None]).logits[0, len(row.prompt_ids) - 1 : -1]
    return logits.log_softmax(-1).gather(1, ids[len(row.prompt_ids) :, None])[:, 0]


def reference_loss(model: Any, made: Sequence[TrainRow], advantages: Sequence[float]) -> Any:
    """GRPO with clip-higher: the mean over all tokens in the loss, each with its row's weight."""
    import torch

    total, tokens = torch.zeros((), dtype=torch.float64), 0.0
    for row, advantage in zip(made, advantages, strict=True):
        ratio = (token_logprobs(model, row) - torch.tensor(row.logprobs).double()).exp()
        clipped = ratio.clamp(1 - CLIP_LOW, 1 + CLIP_HIGH)
        losses = -torch.minimum(ratio * advantage, clipped * advantage)
        mask = torch.tensor(row.loss_mask)
        total = total + row.weight * losses[mask].sum()
        tokens += row.weight * float(mask.sum())
    return total / tokens


def gradient(model: Any, loss: Any) -> Any:
    """The gradient of a loss over all parameters, as one vector."""
    import torch

    model.zero_grad()
    loss.backward()
    return torch.cat([each.grad.flatten() for each in model.parameters() if each.grad is not None]).clone()

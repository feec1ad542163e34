"""Token by token: whose it is, whether it is learnt from, and its log-probs, for colouring.

A span holds its ids and its text, but not where in the text each token ends. The model's own `tokenizer.json` beside
the store knows; without it, or where it doesn't give the span's text, tokens are shown by their numbers.

Limits: byte-level vocabularies (GPT-2, Qwen, Llama 3, SmolLM2); others are shown by their numbers too.
"""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from cleaner_rl.tools import read_json
from cleaner_rl.trajectory import AnyTrajectory, Floats, Placed, TokenSpan, Vocabulary
from cleaner_rl.view.recovery import recovery_view, with_loss

DIGITS = 4
Spans = list[dict[str, Any]]


def tokens_of(trajectory: AnyTrajectory, tokenizer: Path | None) -> dict[str, Spans | None]:
    """Each span's tokens in order, and those of the recovery view; None where there is none, or no tokens."""
    if not isinstance(trajectory.prompt, TokenSpan):
        return {"spans": None, "recovery": None}
    vocabulary = None if tokenizer is None else vocabulary_of(tokenizer)
    recovery = recovery_view(trajectory)
    return {
        "spans": [_span(*each, vocabulary) for each in with_loss(trajectory)],
        "recovery": None
        if recovery is None
        else [_span(*each, vocabulary) for each in with_loss(recovery, recovery=True)],
    }


@cache
def vocabulary_of(tokenizer: Path) -> Vocabulary | None:
    """The bytes of every token, from the file itself: no tokenizer library is needed to decode."""
    try:
        described = read_json(tokenizer.read_bytes())
        if "ByteLevel" not in json.dumps(described.get("decoder")):
            return None
        added = {token["content"]: token["id"] for token in described.get("added_tokens", ())}
        return Vocabulary.from_byte_level(described["model"]["vocab"], added)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _span(placed: Placed[Any], learnt: bool, vocabulary: Vocabulary | None) -> dict[str, Any]:
    span: TokenSpan = placed.span
    stands = span.rescored if placed.moved else span.sampled
    return {
        "owner": placed.owner,
        "turn": placed.turn,
        "learnt": learnt,
        "moved": placed.moved,
        "texts": _texts(span, vocabulary),
        "ids": span.ids.tolist(),
        "logprobs": None if stands is None else _numbers(stands.logprobs),
        "sampled": _numbers(span.sampled.logprobs) if placed.moved and span.sampled is not None else None,
        "version": None if span.sampled is None else span.sampled.version,
    }


def _texts(span: TokenSpan, vocabulary: Vocabulary | None) -> list[str] | None:
    """Each token's text; of a character that several tokens spell, all of it stands with the last one."""
    try:
        decoded = None if vocabulary is None else vocabulary.decode(span.ids)
    except IndexError:  # another model's ids
        return None
    if decoded is None or decoded.text != span.text:
        return None
    ends = np.maximum.accumulate(decoded.offsets).tolist()
    return [span.text[start:end] for start, end in pairwise(ends)]


def _numbers(logprobs: Floats) -> list[float | None]:
    """Return the value rounded, or null where it is NaN."""
    return [round(value, DIGITS) if np.isfinite(value) else None for value in logprobs.tolist()]

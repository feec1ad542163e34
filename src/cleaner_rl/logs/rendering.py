"""Renders SFT rows with a tokenizer's chat template: to token ids with labels, and to cut what is too long.

A template may write a message otherwise once others follow it (Qwen3 leaves out the thoughts of earlier turns). Each
turn is learnt as the model would have written it: where the later text of a row has lost it, it gets a row of its own
that ends with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from os.path import commonprefix
from typing import Any

from cleaner_rl.logs.containers import ExtraMissingError, PurifyError
from cleaner_rl.logs.formats.base import Record
from cleaner_rl.logs.messages import Unreadable

PER_MESSAGE = ("messages", "loss_mask", "turns")
"""Entries of a row that have an entry per message."""
NO_LOSS = -100
"""The label of a token that is not learnt."""


class Template:
    """The chat template of a tokenizer of transformers."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def text(self, messages: list[Record], tools: list[Record] | None, *, opened: bool = False) -> str:
        """Return messages as text; `opened` with what the model's next turn begins with."""
        options = {"tools": tools, "tokenize": False, "add_generation_prompt": opened}
        try:
            return str(self.tokenizer.apply_chat_template(messages, **options))
        except Exception as error:  # what a template can raise is its own affair
            with suppress(Exception):  # DeepSeek-V3's takes arguments as text alone
                return str(self.tokenizer.apply_chat_template([_with_text(each) for each in messages], **options))
            raise Unreadable(f"messages that the chat template refuses ({error})") from error

    def count(self, messages: list[Record], tools: list[Record] | None) -> int:
        """Return the tokens of messages."""
        return self.count_text(self.text(messages, tools))

    def count_text(self, text: str) -> int:
        """Return the tokens of a text."""
        return len(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def labelled(self, row: Record, max_tokens: int | None) -> Iterator[tuple[list[int], list[int]]]:
        """Yield token ids and labels that teach each message in the loss once."""
        messages, tools = row["messages"], row["tools"]
        whole, spans = "", list[tuple[int, int]]()
        for place in reversed([place for place, mask in enumerate(row["loss_mask"]) if mask]):
            closed = self.text(messages[: place + 1], tools).rstrip("\n")
            start = len(commonprefix([self.text(messages[:place], tools, opened=True), closed]))  # noqa: RUF071
            if not whole.startswith(closed):
                yield from self._tokens(whole, spans, max_tokens)
                whole, spans = closed, []
            spans.append((start, len(closed)))
        yield from self._tokens(whole, spans, max_tokens)

    def _tokens(
        self, text: str, spans: list[tuple[int, int]], max_tokens: int | None
    ) -> Iterator[tuple[list[int], list[int]]]:
        made = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        ids, waiting = list(made["input_ids"]), sorted(spans)
        labels = []
        for token, (start, end) in zip(ids, made["offset_mapping"], strict=True):
            while waiting and start >= waiting[0][1]:
                del waiting[0]
            labels.append(token if waiting and waiting[0][0] <= start and end <= waiting[0][1] else NO_LOSS)
        if any(label != NO_LOSS for label in labels) and (max_tokens is None or len(ids) <= max_tokens):
            yield ids, labels

    def pieces(self, row: Record, max_tokens: int) -> Iterator[Record]:
        """Yield a row in pieces of so many tokens: each has the messages before the first turn, and the next turns.

        Of a turn that has no room even alone, the results are left out; if that is not enough, the turn is.
        """
        starts = [place for place, message in enumerate(row["messages"]) if message["role"] == "assistant"]
        ends = [*starts[1:], len(row["messages"])]
        head = list(range(starts[0])) if starts else []

        def piece(first: int, last: int) -> Record:
            places = [*head, *range(first, last)]
            return {**row, **{name: [row[name][place] for place in places] for name in PER_MESSAGE}}

        def fits(made: Record) -> bool:
            return self.count(made["messages"], made["tools"]) <= max_tokens

        begin = 0
        while begin < len(starts):
            first = starts[begin]
            low, high = begin, len(starts) + 1
            if fits(piece(first, ends[-1])):
                low = len(starts)
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if fits(piece(first, ends[middle - 1])) else (low, middle)
            alone = low == begin
            made = piece(first, first + 1 if alone else ends[low - 1])
            if not alone or fits(made):
                yield made
            begin = begin + 1 if alone else low


def _with_text(message: Record) -> Record:
    """Return a message with the arguments of its calls as JSON text."""
    calls = [
        {**call, "function": {**call["function"], "arguments": json.dumps(call["function"]["arguments"])}}
        for call in message.get("tool_calls", ())
    ]
    return {**message, "tool_calls": calls} if calls else message


@cache
def template_of(name: str) -> Template:
    """Return the chat template of a tokenizer. Raises `PurifyError` if there is none that can be used."""
    if find_spec("transformers") is None:
        raise ExtraMissingError(
            "A tokenizer is needed for these rows, and transformers is not installed: pip install 'cleaner-rl[rollout]'"
        )
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise PurifyError(f"the tokenizer {name} can't be read: {error}") from None
    if not tokenizer.chat_template or not tokenizer.is_fast:
        raise PurifyError(f"the tokenizer {name} has no chat template, or is not a fast one; rows need both")
    return Template(tokenizer)

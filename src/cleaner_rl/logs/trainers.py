"""Writes SFT rows in the keys of a trainer: one table, in which a trainer is a line.

| | a turn is left out of the loss by | a call's arguments, and the tools |
| --- | --- | --- |
| (none), `verl` | `loss_mask`, an entry per message | objects; JSON columns of Parquet |
| `trl` | `labels` of -100: TRL has no flag for a message | (rendered with a tokenizer) |
| `axolotl` | `train` in the message | JSON text, which axolotl opens |
| `swift` | `loss` in the message | JSON text, which ms-swift opens |
| `tinker` | `trainable` in the message | JSON text, as its `ToolCall` has it |
| `slime` | `step_loss_mask` in the message | objects |
| `prime` | nothing, it masks by role: a row ends before the first such turn | JSON text, which prime-rl opens |
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from cleaner_rl.logs.formats.base import Record
from cleaner_rl.logs.rendering import PER_MESSAGE, Template
from cleaner_rl.logs.row_files import SOURCE_COLUMNS, TOOLS, Column, SftKind, json_field, message_type

ID = "id"
LINEAGE: tuple[Column, ...] = (
    ("part", pa.int32()),
    ("task", pa.string()),
    ("rollout", pa.int64()),
    ("success", pa.bool_()),
    ("reward", pa.float64()),
    ("edits", pa.int32()),
    ("masked", pa.list_(pa.int32())),
    ("repaired", pa.list_(pa.int32())),
    *SOURCE_COLUMNS,
)
"""Columns that say what a row is of: its place among the rows of its trajectory, how that ended, and which of its turns
are out of the loss, and which are repaired (numbers of turns of the repaired trajectory, from 0)."""
LINEAGE_NAMES = ("task", "rollout", "success", "reward", *(name for name, _ in SOURCE_COLUMNS))


class Trainer(StrEnum):
    """A trainer with keys of its own."""

    TRL = "trl"
    VERL = "verl"
    AXOLOTL = "axolotl"
    SWIFT = "swift"
    TINKER = "tinker"
    SLIME = "slime"
    PRIME = "prime"


class Thoughts(StrEnum):
    """Where a trainer's messages have the model's reasoning."""

    FIELD = "field"
    """In `reasoning_content`."""
    TAGS = "tags"
    """In the content, between `<think>` tags."""
    PARTS = "parts"
    """In a part of the content."""


@dataclass(frozen=True, slots=True)
class SftForm:
    """How a trainer's rows are written."""

    kind: SftKind
    """The kind of file that the trainer reads without guessing a schema."""
    flag: str | None = None
    """The key of a message that says whether it is in the loss."""
    number: bool = False
    """Whether that key is 1 or 0 and not true or false."""
    text: bool = False
    """Whether arguments and tools are JSON text."""
    thoughts: Thoughts = Thoughts.FIELD
    by_role: bool = False
    """Whether every message of the model is in the loss."""
    tokens: bool = False
    """Whether a row is token ids and labels."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """Return the columns of a row."""
        if self.tokens:
            ids: tuple[Column, ...] = (("input_ids", pa.list_(pa.int32())), ("labels", pa.list_(pa.int32())))
            return ((ID, pa.string()), *ids, *LINEAGE)
        flags = [] if self.flag is None else [pa.field(self.flag, pa.int8() if self.number else pa.bool_())]
        kind = message_type(pa.field("arguments", pa.string()) if self.text else json_field("arguments"), flags)
        tools = pa.field("tools", pa.string()) if self.text else TOOLS
        mask: tuple[Column, ...] = () if self.flag or self.by_role else (("loss_mask", pa.list_(pa.int8())),)
        return ((ID, pa.string()), ("messages", pa.list_(kind)), tools, *mask, *LINEAGE)


PLAIN = SftForm(SftKind.JSONL)
"""Rows for no trainer in particular."""
FORMS: Mapping[Trainer, SftForm] = {
    Trainer.TRL: SftForm(SftKind.PARQUET, tokens=True),
    Trainer.VERL: SftForm(SftKind.PARQUET),
    Trainer.AXOLOTL: SftForm(SftKind.PARQUET, "train", text=True),
    Trainer.SWIFT: SftForm(SftKind.PARQUET, "loss", text=True, thoughts=Thoughts.TAGS),
    Trainer.TINKER: SftForm(SftKind.JSONL, "trainable", text=True, thoughts=Thoughts.PARTS),
    Trainer.SLIME: SftForm(SftKind.JSONL, "step_loss_mask", number=True),
    Trainer.PRIME: SftForm(SftKind.PARQUET, text=True, by_role=True),
}


def form_of(trainer: Trainer | None) -> SftForm:
    """Return how the rows of a trainer are written."""
    return PLAIN if trainer is None else FORMS[trainer]


def written_for(
    rows: Iterable[Record], form: SftForm, template: Template | None = None, max_tokens: int | None = None
) -> Iterator[Record]:
    """Yield the rows of a trajectory as a trainer reads them, those that are too long or have to be split in parts.

    Raises `Unreadable` if the chat template refuses the messages.
    """
    for part, (row, made) in enumerate(_parts(rows, form, template, max_tokens)):
        there = {turn for turn in row["turns"] if turn is not None}
        masked, repaired = ([turn for turn in row[name] if turn in there] for name in ("masked", "repaired"))
        lineage = {name: row[name] for name in LINEAGE_NAMES}
        own = {"part": part, "masked": masked, "repaired": repaired, "edits": len(repaired)}
        yield {ID: row_id(made), **made, **lineage, **own}


def _parts(
    rows: Iterable[Record], form: SftForm, template: Template | None, max_tokens: int | None
) -> Iterator[tuple[Record, Record]]:
    for row in rows:
        cut = _before_unfit(row) if form.by_role else row
        for piece in [cut] if template is None or max_tokens is None else template.pieces(cut, max_tokens):
            if not any(piece["loss_mask"]):
                continue
            if not form.tokens:
                yield piece, _in_form(piece, form)
                continue
            assert template is not None, "settings ask for a tokenizer"
            for ids, labels in template.labelled(piece, max_tokens):
                yield piece, {"input_ids": ids, "labels": labels}


def row_id(row: Record) -> str:
    """Return a name of what a row teaches: the same for the same conversation with the same mask."""
    return blake2b(json.dumps(row, sort_keys=True).encode(), digest_size=8).hexdigest()


def _in_form(row: Record, form: SftForm) -> Record:
    tools: Any = row["tools"]
    if form.text and tools is not None:
        tools = json.dumps(tools, ensure_ascii=False)
    mask = row["loss_mask"]
    made: Record = {"messages": [_message(*each, form) for each in zip(row["messages"], mask, strict=True)]}
    if tools is not None or not form.number:  # slime takes a list or no key
        made["tools"] = tools
    return made if form.flag is not None or form.by_role else {**made, "loss_mask": mask}


def _message(said: Record, mask: int, form: SftForm) -> Record:
    made = dict(said)
    thought = made.get("reasoning_content")
    if form.thoughts is not Thoughts.FIELD and thought is not None:
        del made["reasoning_content"]
        if form.thoughts is Thoughts.TAGS:
            made["content"] = f"<think>\n{thought}\n</think>\n\n{made['content']}"
        else:
            made["content"] = [{"type": "thinking", "thinking": thought}, {"type": "text", "text": made["content"]}]
    if form.text and "tool_calls" in made:
        made["tool_calls"] = [_with_text(call) for call in made["tool_calls"]]
    if form.flag is not None:
        made[form.flag] = mask if form.number else bool(mask)
    return made


def _with_text(call: Record) -> Record:
    function = call["function"]
    arguments = json.dumps(function["arguments"], ensure_ascii=False)
    return {**call, "function": {**function, "arguments": arguments}}


def _before_unfit(row: Record) -> Record:
    """Return a row up to its first message of the model that is not to be learnt."""
    said = zip(row["messages"], row["loss_mask"], strict=True)
    unfit = (place for place, (message, fit) in enumerate(said) if message["role"] == "assistant" and not fit)
    end = next(unfit, len(row["messages"]))
    return {**row, **{name: row[name][:end] for name in PER_MESSAGE}}

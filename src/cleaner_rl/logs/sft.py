"""Writes trajectories as rows for supervised fine-tuning: `messages`, `tools`, and a loss mask.

A row can be read by Hugging Face datasets and by verl's multi-turn SFT trainer. `loss_mask` has one entry per message.
It is 1 at the model's own turns, and 0 where somebody else speaks, at turns with a call that failed or was denied and
was not repaired (they are context, not examples), at turns of which nobody can tell how their calls ended (unless
`UnsureTurns.TRAIN` is chosen), and at turns without text or a call. verl's own data set trains on every assistant
message and knows no such column; give it rows without such turns (`clean_only`).

A trajectory that isn't read as turns makes no row, nor does one without a message in the loss, one that holds more than
text, calls and results, nor one with text that is no Unicode."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pyarrow as pa

from cleaner_rl.logs.formats.base import Record, log_of
from cleaner_rl.logs.records import chat_of_record
from cleaner_rl.logs.row_files import MESSAGE, SOURCE_COLUMNS, Column
from cleaner_rl.trajectory import StopReason, Trajectory, Turn

COLUMNS: tuple[Column, ...] = (
    ("messages", pa.list_(MESSAGE)),
    ("loss_mask", pa.list_(pa.int8())),
    ("task", pa.string()),
    ("rollout", pa.int64()),
    ("reward", pa.float64()),
    ("edits", pa.int32()),
    *SOURCE_COLUMNS,
)
"""Columns of a row in Parquet, beside its tools."""


class UnsureTurns(StrEnum):
    """What becomes of turns with a call of which nobody can tell how it ended."""

    MASK = "mask"
    """They are context, and left out of the loss."""
    TRAIN = "train"
    """They are examples like turns whose calls worked."""


def sft_row(
    trajectory: Trajectory[Any], *, clean_only: bool = False, unsure: UnsureTurns = UnsureTurns.MASK
) -> Record | None:
    """Return the row of a trajectory; None if it isn't read as turns, trains on nothing, or has unwanted failures.

    A turn with calls is an example if all of them worked. One with a call that failed or was denied is not; nor, unless
    `unsure` says so, one of which nobody can tell how its calls ended. A turn that was cut off is no more to be learnt:
    a trainer would put an end behind it. Nor is one that says nothing. Raises `Unreadable` if the trajectory holds more
    than messages can.
    """
    if not trajectory.usable or not trajectory.turns:
        return None
    chat = chat_of_record(trajectory)
    if chat is None:
        return None
    unfit = {number for number, turn in enumerate(trajectory.turns) if not _is_example(turn, unsure)}
    said = zip(chat.turns, chat.messages, strict=True)
    unfit |= {turn for turn, message in said if turn is not None and not _has_words(message)}
    if trajectory.stop_reason is StopReason.TOKEN_LIMIT and not trajectory.turns[-1].results:
        unfit.add(len(trajectory.turns) - 1)
    if clean_only and unfit:
        return None
    mask = [int(turn is not None and turn not in unfit) for turn in chat.turns]
    if not any(mask):
        return None
    key = trajectory.key
    return {
        "messages": chat.messages,
        "tools": chat.tools,
        "loss_mask": mask,
        "task": key.task,
        "rollout": key.rollout,
        "reward": trajectory.reward,
        "edits": len(trajectory.edits),
        **source_of_row(trajectory),
    }


def _is_example(turn: Turn[Any], unsure: UnsureTurns) -> bool:
    """Return whether a turn's calls are worth learning: there are none, or they worked."""
    if turn.calls and not turn.results:
        return unsure is UnsureTurns.TRAIN
    return not turn.calls or turn.verified


def _has_words(message: Record) -> bool:
    text = message.get("content")
    spoken = text.strip() if isinstance(text, str) else text
    return bool(spoken or message.get("reasoning_content") or message.get("tool_calls"))


def source_of_row(trajectory: Trajectory[Any]) -> Record:
    """Return the columns of a row that say where its trajectory came from; each is None for a rollout of our own."""
    source = log_of(trajectory).get("source", {})
    return {name: source.get(name.removeprefix("source_")) for name, _ in SOURCE_COLUMNS}

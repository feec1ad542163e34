"""Writes trajectories as rows for supervised fine-tuning: `messages`, `tools`, and a loss mask.

`loss_mask` has one entry per message, and `turns` the turn that each is of. The mask is 1 at the model's own turns, and
0 where somebody else speaks, at turns with a call that failed or was denied and was not repaired (they are context, not
examples), at turns of which nobody can tell how their calls ended (unless `UnsureTurns.TRAIN` is chosen), and at turns
without text or a call. `trainers` writes the same row in the keys of a trainer.

A trajectory makes one row for each context that the model had: where the harness put a summary in place of what was
said before (a compaction), a row ends and the next begins with the system's words and the summary.

A trajectory that isn't read as turns makes no row, nor does a context without a message in the loss, one that holds
more than text, calls and results, nor one with text that is no Unicode."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from itertools import pairwise, takewhile
from typing import Any

from cleaner_rl.logs.formats.base import Conversation, Record, log_of
from cleaner_rl.logs.records import chat_of_record
from cleaner_rl.logs.row_files import SOURCE_COLUMNS
from cleaner_rl.trajectory import StopReason, Trajectory, Turn


class UnsureTurns(StrEnum):
    """What becomes of turns with a call of which nobody can tell how it ended."""

    MASK = "mask"
    """They are context, and left out of the loss."""
    TRAIN = "train"
    """They are examples like turns whose calls worked."""


def sft_rows(
    trajectory: Trajectory[Any], *, clean_only: bool = False, unsure: UnsureTurns = UnsureTurns.MASK
) -> list[Record]:
    """Return the rows of a trajectory; none if it isn't read as turns, trains on nothing, or has unwanted failures.

    A turn with calls is an example if all of them worked. One with a call that failed or was denied is not; nor, unless
    `unsure` says so, one of which nobody can tell how its calls ended. A turn that was cut off is no more to be learnt:
    a trainer would put an end behind it. Nor is one that says nothing. Raises `Unreadable` if the trajectory holds more
    than messages can.
    """
    if not trajectory.usable or not trajectory.turns:
        return []
    chat = chat_of_record(trajectory)
    if chat is None:
        return []
    unfit = {number for number, turn in enumerate(trajectory.turns) if not _is_example(turn, unsure)}
    said = zip(chat.turns, chat.messages, strict=True)
    unfit |= {turn for turn, message in said if turn is not None and not _has_words(message)}
    if trajectory.stop_reason is StopReason.TOKEN_LIMIT and not trajectory.turns[-1].results:
        unfit.add(len(trajectory.turns) - 1)
    if clean_only and unfit:
        return []
    key = trajectory.key
    rows = []
    for messages, turns in _contexts(chat):
        mask = [int(turn is not None and turn not in unfit) for turn in turns]
        if any(mask):
            rows.append(
                {
                    "messages": messages,
                    "tools": chat.tools,
                    "loss_mask": mask,
                    "turns": turns,
                    "task": key.task,
                    "rollout": key.rollout,
                    "success": trajectory.success,
                    "reward": trajectory.reward,
                    "masked": sorted(unfit),
                    "repaired": [index for index, _ in trajectory.edits],
                    **source_of_row(trajectory),
                }
            )
    return rows


def _contexts(chat: Conversation) -> Iterator[tuple[list[Record], list[int | None]]]:
    """Yield the messages of each context that the model had, and the turn that each is of."""
    system = list(takewhile(lambda message: message["role"] == "system", chat.messages))
    for start, end in pairwise([0, *chat.restarts, len(chat.messages)]):
        before = system if start else []
        yield [*before, *chat.messages[start:end]], [*(None for _ in before), *chat.turns[start:end]]


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

"""Writes repairs as rows for self-distillation: a context, the failed turn, its feedback, and the verified correction.

Such a row has what a teacher may see and a student may not. Both have the context (`messages`). The teacher also sees
what failed and what the tools answered; the student learns the correction from the context alone.

`messages` and `correction` are what the repaired trajectory has. Repairs of training runs are taken as they are. A
failure that was left alone makes no row, nor does a trajectory that makes no chat.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from typing import Any

import pyarrow as pa

from cleaner_rl.logs.formats.base import Conversation, Record
from cleaner_rl.logs.records import chat_of_record
from cleaner_rl.logs.row_files import MESSAGE, SOURCE_COLUMNS, TOOLS, Column
from cleaner_rl.logs.sft import source_of_row
from cleaner_rl.trajectory import Edit, RepairMode, Trajectory, undo

COLUMNS: tuple[Column, ...] = (
    ("messages", pa.list_(MESSAGE)),
    TOOLS,
    ("failed", MESSAGE),
    ("feedback", pa.list_(MESSAGE)),
    ("further", pa.list_(MESSAGE)),
    ("correction", MESSAGE),
    ("mode", pa.string()),
    ("kind", pa.string()),
    ("turn", pa.int32()),
    ("task", pa.string()),
    ("rollout", pa.int64()),
    ("reward", pa.float64()),
    ("success", pa.bool_()),
    *SOURCE_COLUMNS,
)
"""Columns of a row."""


def distillation_rows(trajectory: Trajectory[Any]) -> list[Record]:
    """Return a row for each repair of a trajectory; none if it isn't read as turns.

    Raises `Unreadable` if the trajectory holds more than messages can.

    Examples:
        >>> from cleaner_rl.logs import distillation_rows
        >>> from cleaner_rl.tools import Status, ToolCall, ToolResult
        >>> from cleaner_rl.trajectory import Edit, RepairKind, RepairMode, RolloutInfo, TextSpan, Trajectory, Turn
        >>> def turn(code, status, output, edit=None):
        ...     call = ToolCall("python", {"code": code}, code, 0, len(code))
        ...     shown, results = TextSpan(output), (ToolResult(status, output),)
        ...     return Turn(TextSpan("I add. "), TextSpan(code), shown, (call,), results, edit=edit)
        >>> failed, worked = turn("print(y)", Status.ERROR, "NameError"), turn("print(2)", Status.OK, "2")
        >>> edit = Edit(RepairMode.HINDSIGHT, RepairKind.GRAFT, (failed, worked))
        >>> question = RolloutInfo(messages=[{"role": "user", "content": "1 + 1?"}])
        >>> repaired = Trajectory(TextSpan("1 + 1?"), (turn("print(2)", Status.OK, "2", edit),), info=question)
        >>> (row,) = distillation_rows(repaired)
        >>> [row[name]["content"] for name in ("failed", "correction")]
        ['I add. print(y)', 'I add. print(2)']
    """
    if not trajectory.usable or not any(edit.commits for _, edit in trajectory.edits):
        return []
    repaired = chat_of_record(trajectory)
    if repaired is None:
        return []
    return [
        _row(trajectory, repaired, index, edit)
        for index, edit in trajectory.edits
        if edit.commits and trajectory.turns[index].verified
    ]


def _row(trajectory: Trajectory[Any], repaired: Conversation, index: int, edit: Edit[Any]) -> Record:
    failed, *further = _exchanges(trajectory, index, edit)
    place = repaired.turns.index(index)
    key = trajectory.key
    return {
        "messages": repaired.messages[:place],
        "tools": repaired.tools,
        "failed": failed[0],
        "feedback": failed[1:],
        "further": [message for each in further for message in each],
        "correction": repaired.messages[place],
        "mode": edit.mode.value,
        "kind": edit.kind.value,
        "turn": index,
        "task": key.task,
        "rollout": key.rollout,
        "reward": trajectory.reward,
        "success": trajectory.success,
        **source_of_row(trajectory),
    }


def _exchanges(trajectory: Trajectory[Any], index: int, edit: Edit[Any]) -> list[list[Record]]:
    """Return each turn that a repair removed, with what the tools answered to it, as messages."""
    # An attempt without feedback was no part of the context that the next one saw.
    removed = tuple(turn for turn in edit.original[:-1] if turn.observation is not None)
    if edit.mode is RepairMode.HINDSIGHT:
        before = undo(trajectory, index)
    else:
        before = replace(trajectory, turns=(*trajectory.turns[:index], *removed))
    chat = chat_of_record(before)
    assert chat is not None
    starts = [chat.turns.index(index + number) for number in range(len(removed))]
    return [[chat.messages[start], *_answers(chat, start)] for start in starts]


def _answers(chat: Conversation, start: int) -> list[Record]:
    """Return the messages after one of the model's, up to its next one."""
    said = zip(chat.messages[start + 1 :], chat.turns[start + 1 :], strict=True)
    return [message for message, _ in takewhile(lambda each: each[1] is None, said)]

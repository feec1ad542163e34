"""`mint`: results of MINT (xingyaoww/mint-bench), a line of JSONL each.

A line is `{state: {history, success, …}, task}`. `history` is a chat; a call is the `<execute>` block that ends an
answer, and the message behind it begins with `Observation:`. Copies of the chat elsewhere in `state` stay as they were.
"""

from __future__ import annotations

from typing import Any

from cleaner_rl.logs.formats.base import Record, inside
from cleaner_rl.logs.formats.messages import MessagesFormat
from cleaner_rl.logs.frames import Message


class MintFormat(MessagesFormat):
    """Reads and writes results of MINT."""

    name = "mint"
    field = "state"

    def detects(self, record: object) -> bool:
        """Return whether a record has a task, and a state with a history of messages."""
        return bool(inside(record, "task")) and self.are_messages(inside(record, "state").get("history"))

    def taken(self, record: Record, field: str) -> tuple[Any, Record]:
        """Return the messages of the history, and the record without them."""
        state = inside(record, field)
        return state.get("history"), {**record, field: {**state, "history": None}}

    def given_back(self, record: Record, field: str, messages: list[Message]) -> Record:
        """Return the record with messages: the opposite of `taken`."""
        return {**record, field: {**record[field], "history": messages}}

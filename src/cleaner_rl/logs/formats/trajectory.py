"""`trajectory`: data-set rows whose chat is in a column `trajectory`, `traj` or `conversations`, or is JSON text.

The messages are OpenAI's (`role`, `content`, `tool_calls`), as in nebius/SWE-rebench-openhands-trajectories and, as
JSON text in `messages`, in SWE-bench/SWE-smith-trajectories; or they have `text` and the role `ai`, as in
nebius/SWE-agent-trajectories. There the command is the fenced block that ends an answer, and the user's message behind
it is the result. Columns such as `resolved`, `instance_id` and `tools` are used as in `openai`."""

from __future__ import annotations

from typing import Any

from cleaner_rl.logs.fences import are_plain, ends_with, with_calls
from cleaner_rl.logs.formats.base import Record
from cleaner_rl.logs.formats.messages import MessagesFormat
from cleaner_rl.logs.frames import Message
from cleaner_rl.logs.json_text import closed, opened
from cleaner_rl.logs.messages import Dialect, Unreadable

FIELDS = ("trajectory", "traj", "conversations", "conversation")
"""Columns that may hold the chat; `messages` does if it is JSON text."""
TEXT = "cleaner_rl.text"
"""The field of a message that had its words in `text`."""


class TrajectoryFormat(MessagesFormat):
    """Reads and writes rows with a chat in a column of another name."""

    name = "trajectory"
    dialect = Dialect(assistants=("assistant", "ai", "agent"))

    def detects(self, record: object) -> bool:
        """Return whether a column holds messages."""
        if not isinstance(record, dict) or isinstance(record.get(self.field), list):
            return False
        try:
            return bool(record.get(self.field_of(record))) and super().detects(record)
        except Unreadable:
            return False

    def are_messages(self, value: object) -> bool:
        """Return whether it is a list of messages, each with words, calls or nothing."""
        return super().are_messages(value) and isinstance(value, list) and all(map(_is_message, value))

    def field_of(self, record: Record) -> str:
        """Return the first of the columns that is a list or text."""
        return next((name for name in FIELDS if isinstance(record.get(name), list | str)), self.field)

    def taken(self, record: Record, field: str) -> tuple[Any, Record]:
        """Return the messages, out of JSON text if they are in one."""
        if not isinstance(record.get(field), str):
            return super().taken(record, field)
        messages, style = opened(record[field])
        return messages, {**record, field: style}

    def given_back(self, record: Record, field: str, messages: list[Message]) -> Record:
        """Return the record with its messages, as JSON text if they were in one."""
        style = record[field]
        return {**record, field: messages if style is None else closed(messages, style)}

    def unpack_all(self, messages: list[Message]) -> list[Message]:
        """Return the messages with `content`, and the commands of SWE-agent's `ai` as calls."""
        found = list(map(self.unpack, messages))
        told = any(message["role"] == "assistant" for message in messages)
        return with_calls(found, self.dialect, ends_with, told=told) if are_plain(found) else found

    def unpack(self, message: Message) -> Message:
        """Return a message with its words in `content`."""
        if "content" in message or "text" not in message:
            return message
        return {**{"content" if name == "text" else name: value for name, value in message.items()}, TEXT: True}

    def pack(self, message: Message) -> Message:
        """Return a message as the log has it."""
        name = "text" if TEXT in message else "content"
        return {name if key == "content" else key: value for key, value in message.items() if key != TEXT}


def _is_message(message: Message) -> bool:
    return any(name in message for name in ("content", "text", "tool_calls")) and isinstance(message["role"], str)

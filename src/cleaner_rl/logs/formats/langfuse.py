"""`langfuse`: generations that were exported from Langfuse, with the chat in `input` and the answer in `output`.

An observation of the type `GENERATION` has `traceId`, `input` and `output`, as Langfuse's API reference has it. `input`
is a list of OpenAI's messages, or an object with them in `messages` beside `tools`; `output` is the answer.

Limits: this reader was never tried on a real export. Generations with other inputs are passed through. Those of one
trace repeat each other, so export the last."""

from __future__ import annotations

from typing import Any

from cleaner_rl.logs.entries import at
from cleaner_rl.logs.formats.base import Record
from cleaner_rl.logs.formats.messages import MessagesFormat
from cleaner_rl.logs.frames import Message

ANSWER = "cleaner_rl.answer"
"""Marks the answer while it follows the messages before it."""


class LangfuseFormat(MessagesFormat):
    """Reads and writes generations with a chat."""

    name = "langfuse"
    field = "input"

    def detects(self, record: object) -> bool:
        """Return whether a record is a generation with messages."""
        named = isinstance(record, dict) and record.get("type") == "GENERATION" and "traceId" in record
        return named and super().detects(record)

    def taken(self, record: Record, field: str) -> tuple[Any, Record]:
        """Return the messages of the input, and the answer."""
        asked, answer = record.get(field), record.get("output")
        messages: Any = asked.get("messages") if isinstance(asked, dict) else asked
        if not self.are_messages(messages):
            return None, record
        rest = {**record, field: {**asked, "messages": None} if isinstance(asked, dict) else None}
        if not isinstance(answer, dict) or not self.are_messages([answer]):
            return messages, rest
        return [*messages, {**answer, ANSWER: True}], {**rest, "output": {ANSWER: True}}

    def given_back(self, record: Record, field: str, messages: list[Message]) -> Record:
        """Return the record with its messages, each where it was."""
        asked = [message for message in messages if ANSWER not in message]
        answers = [
            {name: value for name, value in each.items() if name != ANSWER} for each in messages if ANSWER in each
        ]
        filled = {**record[field], "messages": asked} if isinstance(record[field], dict) else asked
        return {**record, field: filled, **({"output": answers[0]} if answers else {})}

    def tools(self, record: Record) -> Any:
        """Return the tools beside the messages."""
        return at(record, ("input", "tools"))

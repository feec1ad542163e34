"""`sharegpt`: records with `conversations` of `{from, value}`, with or without tools.

Calls are messages from `function_call`, their value JSON text of `{name, arguments}` or a list of them, and results are
from `observation`, as LLaMA-Factory describes it ("Sharegpt Format" in its `data/README.md`); or both are in the text,
as Hermes writes them. `system` and `tools` are beside the conversation. There is no field for how a call ended."""

from __future__ import annotations

from typing import Any

from cleaner_rl.logs.formats.base import Record
from cleaner_rl.logs.formats.messages import MessagesFormat
from cleaner_rl.logs.frames import Message
from cleaner_rl.logs.json_text import closed, opened
from cleaner_rl.logs.messages import Dialect

CALLS = ("function_call", "tool_call")
STYLE = "cleaner_rl.style"
"""The field for how the JSON text was written, and whether it is a list."""


class ShareGptFormat(MessagesFormat):
    """Reads and writes records with `conversations`."""

    name = "sharegpt"
    field = "conversations"
    dialect = Dialect(
        role="from",
        content="value",
        assistants=("gpt", "assistant", "model", "chatgpt", "bing", *CALLS),
        tools=("observation", "tool", "function_response", "tool_response"),
        users=("human", "user"),
        action_fields=(STYLE, "from", "value"),
    )

    def detects(self, record: object) -> bool:
        """Return whether a record has such messages, at least one."""
        return super().detects(record) and isinstance(record, dict) and bool(record[self.field])

    def unpack(self, message: Message) -> Message:
        """Return a message with its calls as objects."""
        if message.get("from") not in CALLS or not isinstance(message.get("value"), str):
            return message
        found, style = opened(message["value"])
        calls = found if isinstance(found, list) else [found]
        return {**message, "value": "", "tool_calls": calls, STYLE: [style, isinstance(found, list)]}

    def pack(self, message: Message) -> Message:
        """Return an unpacked message as the log has it."""
        if STYLE not in message:
            return message
        style, is_list = message[STYLE]
        calls = message["tool_calls"]
        rest = {name: value for name, value in message.items() if name not in (STYLE, "tool_calls")}
        return {**rest, "value": closed(calls if is_list else calls[0], style)}

    def system(self, record: Record) -> Any:
        """Return the system prompt beside the conversation."""
        return record.get("system")

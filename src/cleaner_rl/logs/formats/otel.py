"""`otel`: spans of OpenTelemetry's conventions for generative AI, with the chat in their attributes.

`gen_ai.input.messages` and `gen_ai.output.messages` are JSON text of messages `{role, parts}`; a part is `text`,
`reasoning`, `tool_call` (`id`, `name`, `arguments`) or `tool_call_response` (`id`, `response`), and
`gen_ai.system_instructions` are parts too, as the semantic conventions describe it. There is no field for how a call
ended.

Limits: this reader was never tried on a real export. Attributes that are not JSON text, and OTLP's own lists of
keys and values, are passed through."""

from __future__ import annotations

from typing import Any

from cleaner_rl.logs.entries import at
from cleaner_rl.logs.formats.base import Record
from cleaner_rl.logs.formats.messages import MessagesFormat
from cleaner_rl.logs.frames import Message, put
from cleaner_rl.logs.json_text import closed, opened
from cleaner_rl.logs.messages import Dialect, Unreadable

ASKED, ANSWERED = ("attributes", "gen_ai.input.messages"), ("attributes", "gen_ai.output.messages")
SYSTEM, TOOLS = ("attributes", "gen_ai.system_instructions"), ("attributes", "gen_ai.tool.definitions")
ANSWER = "cleaner_rl.answer"
"""Marks the messages of the output."""
PARTS = {
    "text": ("text", {"content": "text"}),
    "reasoning": ("thinking", {"content": "thinking"}),
    "tool_call": ("tool_use", {"arguments": "input"}),
    "tool_call_response": ("tool_result", {"id": "tool_use_id", "response": "content"}),
}
"""Types of parts: Anthropic's names of the type and of its fields."""
FORMER = {ours: (kind, {new: old for old, new in names.items()}) for kind, (ours, names) in PARTS.items()}


class OtelFormat(MessagesFormat):
    """Reads and writes spans with a chat."""

    name = "otel"
    dialect = Dialect(content="parts")

    def detects(self, record: object) -> bool:
        """Return whether a record is a span with messages."""
        try:
            return isinstance(record, dict) and isinstance(at(record, ASKED), str) and super().detects(record)
        except Unreadable:
            return False

    def taken(self, record: Record, field: str) -> tuple[Any, Record]:  # noqa: ARG002 - the places are always the same
        """Return the messages of a span, those of the output last."""
        if not isinstance(at(record, ASKED), str):
            return None, record
        asked, style = opened(at(record, ASKED))
        rest = put(record, ASKED, style)
        if not isinstance(at(record, ANSWERED), str) or not self.are_messages(asked):
            return asked, rest
        answered, style = opened(at(record, ANSWERED))
        if not self.are_messages(answered):
            return None, record
        return [*asked, *({**message, ANSWER: True} for message in answered)], put(rest, ANSWERED, style)

    def given_back(self, record: Record, field: str, messages: list[Message]) -> Record:  # noqa: ARG002
        """Return the span with its messages, each where it was."""
        asked = [message for message in messages if ANSWER not in message]
        made = put(record, ASKED, closed(asked, at(record, ASKED)))
        style = at(record, ANSWERED)
        if not isinstance(style, int):
            return made
        answered = [{name: value for name, value in each.items() if name != ANSWER} for each in messages[len(asked) :]]
        return put(made, ANSWERED, closed(answered, style))

    def unpack(self, message: Message) -> Message:
        """Return a message with Anthropic's parts."""
        return {**message, "parts": [_renamed(part, PARTS) for part in message["parts"]]}

    def pack(self, message: Message) -> Message:
        """Return a message as the log has it."""
        return {**message, "parts": [_renamed(part, FORMER) for part in message["parts"]]}

    def system(self, record: Record) -> Any:
        """Return the system instructions."""
        parts = at(record, SYSTEM)
        return [_renamed(part, PARTS) for part in opened(parts)[0]] if isinstance(parts, str) else None

    def tools(self, record: Record) -> Any:
        """Return the definitions of tools."""
        return at(record, TOOLS)


def _renamed(part: Any, kinds: dict[str, tuple[str, dict[str, str]]]) -> Any:
    kind, names = kinds.get(str(part["type"]), (part["type"], {}))
    return {names.get(name, name): kind if name == "type" else value for name, value in part.items()}

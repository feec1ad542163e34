"""`session-trace`: the sessions of the Pi agent, and the Hugging Face Hub's Session Trace Simple Format.

The file is the record. Its first line is the session (`{type: "session", id, harness, …}`), and every other one of the
type `message` holds a message. The Hub's documentation ("Session Traces Format") has its fields: `role`, `content`,
`reasoningContent`, `toolCalls`, `toolCallId`. Pi's (`session-format.md` in its repository) has calls in parts of the
type `toolCall`, and results in messages of the role `toolResult`, whose `isError` says how the call ended.

Limits: it was tried on real sessions of Pi, not on real files of the Hub's format. A session with branches is passed
through. Other lines are kept and end what a repair can reach."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cleaner_rl.logs.entries import BORDER
from cleaner_rl.logs.formats.base import LINES, Record
from cleaner_rl.logs.formats.messages import MessagesFormat
from cleaner_rl.logs.frames import Message
from cleaner_rl.logs.messages import NOTE, Dialect, Unreadable

NAMES = {
    "reasoningContent": "reasoning_content",
    "toolCalls": "tool_calls",
    "toolCallId": "tool_call_id",
    "toolName": "name",
}
"""Fields of a message, and OpenAI's names for them."""
FORMER = {ours: theirs for theirs, ours in NAMES.items()}
PARTS = {"arguments": "input"}
"""Fields of a call that is a part, and Anthropic's names for them."""
FORMER_PARTS = {ours: theirs for theirs, ours in PARTS.items()}
CALL, OUR_CALL = "toolCall", "tool_use"
LINE = "cleaner_rl.line"
"""The field of a message for the line that it is in."""
QUIET = {"session", "session_info", "label", "custom", "model_change", "thinking_level_change"}


class SessionTraceFormat(MessagesFormat):
    """Reads and writes session files with a message per line."""

    name = "session-trace"
    field = LINES
    reads_files = True
    dialect = Dialect(
        tools=("tool", "toolResult"),
        notes=(NOTE, BORDER),
        action_fields=(LINE,),
        sampling_fields=("usage", "timestamp", "stopReason"),
    )

    def detects(self, record: object) -> bool:
        """Return whether the first line is a session, and others are messages."""
        if not isinstance(record, dict) or not super().detects(record) or not record[LINES]:
            return False
        first, *others = record[LINES]
        return first.get("type") == "session" and "id" in first and any(map(_is_message, others))

    def are_messages(self, value: object) -> bool:
        """Return whether it is a list of lines."""
        return isinstance(value, list) and all(isinstance(each, dict) for each in value)

    def unpack_all(self, messages: list[Message]) -> list[Message]:
        """Return the messages of the lines. Raises `Unreadable` if the session has branches."""
        parents = [line["parentId"] for line in messages if isinstance(line.get("parentId"), str)]
        if len(parents) != len(set(parents)):
            raise Unreadable("a session with branches")
        return super().unpack_all(messages)

    def unpack(self, message: Message) -> Message:
        """Return the message of a line, with OpenAI's names."""
        if not _is_message(message):
            return {"role": NOTE if str(message.get("type")) in QUIET else BORDER, LINE: message}
        found = {NAMES.get(name, name): value for name, value in message["message"].items()}
        if isinstance(found.get("content"), list):
            found["content"] = [_renamed(part, CALL, OUR_CALL, PARTS) for part in found["content"]]
        return {**found, LINE: {**message, "message": None}}

    def pack(self, message: Message) -> Message:
        """Return the line of a message."""
        line: Message = message[LINE]
        if not (line.get("type") == "message" and line.get("message", "") is None):
            return line
        found = {FORMER.get(name, name): value for name, value in message.items() if name != LINE}
        if isinstance(found.get("content"), list):
            found["content"] = [_renamed(part, OUR_CALL, CALL, FORMER_PARTS) for part in found["content"]]
        return {**line, "message": found}

    def id_of(self, record: Record) -> str | None:
        """Return the id of the session."""
        found = record[LINES][0].get("id") if record[LINES] else None
        return found if isinstance(found, str) else None


def _is_message(line: Mapping[str, Any]) -> bool:
    message = line.get("message")
    return line.get("type") == "message" and isinstance(message, dict) and isinstance(message.get("role"), str)


def _renamed(part: Any, kind: str, other: str, names: Mapping[str, str]) -> Any:
    if not isinstance(part, dict) or part.get("type") != kind:
        return part
    return {names.get(name, name): other if name == "type" else value for name, value in part.items()}

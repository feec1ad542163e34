"""`message-list`: a file that is a list of messages and nothing else, as JSON or with a message per line.

The messages are those of the format `openai`. Without calls in fields, a fenced or tagged block at the end of an answer
is a call if the reply says that it is its result (`<returncode>`, `Observation:`): so files of mini-swe-agent's first
version are."""

from __future__ import annotations

from cleaner_rl.logs.formats.base import LINES
from cleaner_rl.logs.formats.messages import MessagesFormat

ROLES = {"system", "developer", "user", "assistant", "tool"}


class MessageListFormat(MessagesFormat):
    """Reads and writes files that are a list of messages."""

    name = "message-list"
    field = LINES
    reads_files = True

    def detects(self, record: object) -> bool:
        """Return whether the first of the lines are messages, and nobody answers before somebody asks."""
        lines = record.get(LINES) if isinstance(record, dict) else None
        if not lines or not self.are_messages(lines):
            return False
        known = all(each["role"] in ROLES and "content" in each for each in lines)
        return known and lines[0]["role"] not in ("assistant", "tool")

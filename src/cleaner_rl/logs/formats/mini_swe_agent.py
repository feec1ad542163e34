"""`mini-swe-agent`: the `.traj.json` files of mini-swe-agent, versions 1 and 2.

A file is `{info, messages, trajectory_format: "mini-swe-agent-1…"}`. Version 2 calls its tool `bash` as OpenAI's API
has it, and notes in a result's `extra.returncode` how the command ended ("v2.0 Migration Guide" of its documentation).
Version 1, and version 2 without function calling, have the command as the one block fenced with `bash` or
`mswea_bash_command`; the user's message behind it is the result, where `<returncode>` says how it ended.

A grafted message has the correction's `extra`. SFT rows have the commands as calls of a tool `bash`.

Limits: an answer without exactly one command is words, as it was for mini-swe-agent itself."""

from __future__ import annotations

from typing import Any

from cleaner_rl.logs.entries import at
from cleaner_rl.logs.fences import Block, with_calls
from cleaner_rl.logs.formats.base import Record
from cleaner_rl.logs.formats.messages import MessagesFormat
from cleaner_rl.logs.frames import Message
from cleaner_rl.logs.messages import NOTE, Dialect

LANGUAGES = {"bash", "mswea_bash_command"}


class MiniSweAgentFormat(MessagesFormat):
    """Reads and writes the trajectories of mini-swe-agent."""

    name = "mini-swe-agent"
    dialect = Dialect(outcomes=("extra",), action_fields=("extra",), notes=(NOTE, "exit"))

    def detects(self, record: object) -> bool:
        """Return whether a record names the format, and has messages."""
        named = isinstance(record, dict) and str(record.get("trajectory_format")).startswith("mini-swe-agent")
        return named and super().detects(record)

    def unpack_all(self, messages: list[Message]) -> list[Message]:
        """Return the messages with commands as calls, and what follows a command as its result."""
        return with_calls(messages, self.dialect, _is_command)

    def id_of(self, record: Record) -> str | None:
        """Return the name of the task's instance."""
        found: Any = record.get("instance_id") or at(record, ("info", "instance_id"))
        return found if isinstance(found, str) else None


def _is_command(message: Message, block: Block, text: str) -> bool:  # noqa: ARG001 - the language says it
    return not message.get("tool_calls") and block.language in LANGUAGES

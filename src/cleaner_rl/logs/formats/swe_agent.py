"""`swe-agent`: the `.traj` files of SWE-agent.

A file is `{trajectory, history, info, …}`. `history` is the conversation (`HistoryItem` in its `sweagent/types.py`):
calls are in `tool_calls`, or, without function calling, the command is the fenced block that `action` repeats; the
message behind it is the result. Such a command is a call of the tool that its first word names, if that is one of
SWE-agent's own (`edit`, `open`, …), and else of `bash`, whatever the language of the fence. `trajectory` has the same
once more, a step for each answer; where the two match, an edit changes both. There is no field for how a command ended,
so the text of the observation is judged.

Limits: demonstrations are kept and are no turns. A `trajectory` with more or fewer steps than there are answers stays
that of the original run, and so does `replay_config`."""

from __future__ import annotations

from typing import Any

from cleaner_rl.logs.entries import at
from cleaner_rl.logs.fences import Block, with_calls
from cleaner_rl.logs.formats.base import Record
from cleaner_rl.logs.formats.messages import MessagesFormat
from cleaner_rl.logs.frames import Message
from cleaner_rl.logs.messages import NOTE, Dialect

STEP, SHOWN, LIFTED = "cleaner_rl.step", "cleaner_rl.demonstrated", "cleaner_rl.lifted"
"""Fields for the step that repeats an answer, for a demonstration's role, and of a result whose id was in a list."""
ID = "tool_call_id"
COMMANDS = frozenset(
    {
        *("edit", "create", "insert", "open", "goto", "scroll_up", "scroll_down", "search_dir", "search_file"),
        *("find_file", "submit", "exit_forfeit", "set_cursors"),
    }
)
"""Commands that SWE-agent brings; any other is the shell's."""
REPEATED = {"thought": "thought", "response": "content"}
"""Fields of a step, and those of the answer that they repeat."""


class SweAgentFormat(MessagesFormat):
    """Reads and writes the trajectories of SWE-agent."""

    name = "swe-agent"
    field = "history"
    dialect = Dialect(action_fields=(STEP, "action"), notes=(NOTE,))

    def detects(self, record: object) -> bool:
        """Return whether a record has a history of messages, and steps."""
        if not isinstance(record, dict) or not isinstance(record.get("trajectory"), list):
            return False
        messages = record.get(self.field)
        return bool(messages) and self.are_messages(messages) and "info" in record

    def taken(self, record: Record, field: str) -> tuple[Any, Record]:
        """Return the messages, each answer with the step that repeats it."""
        messages, rest = super().taken(record, field)
        steps = record.get("trajectory")
        if not self.are_messages(messages) or not isinstance(steps, list):
            return messages, rest
        said = [index for index, message in enumerate(messages) if _is_answer(message)]
        if len(said) != len(steps) or not all(isinstance(step, dict) for step in steps):
            return messages, rest
        joined = list(messages)
        for index, step in zip(said, steps, strict=True):
            repeated = {name for name, other in REPEATED.items() if step.get(name, 0) == messages[index].get(other)}
            own = {name: None if name in repeated else value for name, value in step.items()}
            joined[index] = {**messages[index], STEP: [own, sorted(repeated)]}
        return joined, {**rest, "trajectory": None}

    def given_back(self, record: Record, field: str, messages: list[Message]) -> Record:
        """Return the record with its messages and steps."""
        steps = []
        for message in messages:
            if STEP in message:
                own, repeated = message[STEP]
                steps.append({**own, **{name: message.get(REPEATED[name]) for name in repeated}})
        plain = [{name: value for name, value in message.items() if name != STEP} for message in messages]
        both = {"trajectory": steps} if record.get("trajectory", 0) is None else {}
        return super().given_back({**record, **both}, field, plain)

    def unpack_all(self, messages: list[Message]) -> list[Message]:
        """Return the messages with commands as calls, and what follows a command as its result."""
        return with_calls(list(map(self.unpack, messages)), self.dialect, _is_command, named=_named)

    def unpack(self, message: Message) -> Message:
        """Return a result with the id of its call, and a demonstration as a note."""
        if message.get("is_demo"):
            return {**message, "role": NOTE, SHOWN: message["role"]}
        ids = message.get("tool_call_ids")
        if message["role"] == "tool" and isinstance(ids, list) and len(ids) == 1 and ID not in message:
            return {**message, ID: ids[0], LIFTED: True}
        return message

    def pack(self, message: Message) -> Message:
        """Return a message as the log has it."""
        role = {"role": message[SHOWN]} if SHOWN in message else {}
        added = {SHOWN, LIFTED, *([ID] if LIFTED in message else [])}
        return {**{name: value for name, value in message.items() if name not in added}, **role}

    def id_of(self, record: Record) -> str | None:
        """Return the name of the task's instance; None if the file alone has it in its name."""
        found = record.get("instance_id") or at(record, ("info", "instance_id"))
        return found if isinstance(found, str) else None


def _is_answer(message: Message) -> bool:
    return message.get("role") == "assistant" and not message.get("is_demo")


def _is_command(message: Message, block: Block, text: str) -> bool:
    """Return whether it is the block that `action` repeats."""
    action = message.get("action")
    same = isinstance(action, str) and block.program(text).strip() == action.strip()
    return same and not message.get("tool_calls")


def _named(block: Block, text: str) -> tuple[str, str]:
    word = next(iter(block.program(text).split(maxsplit=1)), "")
    return (word, "input") if word in COMMANDS else ("bash", "command")

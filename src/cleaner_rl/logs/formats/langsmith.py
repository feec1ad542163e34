"""`langsmith`: runs that were exported from LangSmith, with LangChain's messages.

A run of a model has them in `inputs.messages[0]` and `outputs.generations[0][0].message`; a run of a graph has all of
them in `outputs.messages`. A message is LangChain's, plain or as its `dumpd` writes it (`lc`, `kwargs`): `type` is
`human`, `ai`, `system` or `tool`, calls are `{name, args, id}`, and `status: "error"` of a result is a failure. The
status `success` only says that the tool gave an answer, so the text is judged.

Limits: this reader was never tried on a real export. A run of several conversations or generations
is passed through."""

from __future__ import annotations

from typing import Any

from cleaner_rl.logs.entries import at
from cleaner_rl.logs.formats.base import Record
from cleaner_rl.logs.formats.messages import MessagesFormat
from cleaner_rl.logs.frames import Message, put
from cleaner_rl.logs.messages import Dialect

ASKED, ALL = ("inputs", "messages"), ("outputs", "messages")
ANSWERED = ("outputs", "generations")
ANSWER, DUMPED, UNTOLD = "cleaner_rl.answer", "cleaner_rl.dumped", "cleaner_rl.status"
"""Mark the answer, and keep the rest of a dumped message and a status that says nothing."""


class LangSmithFormat(MessagesFormat):
    """Reads and writes runs with a chat."""

    name = "langsmith"
    dialect = Dialect(role="type", assistants=("ai",), tools=("tool",), users=("human",), action_fields=(DUMPED,))

    def detects(self, record: object) -> bool:
        """Return whether a record is a run with messages."""
        return isinstance(record, dict) and "run_type" in record and super().detects(record)

    def are_messages(self, value: object) -> bool:
        """Return whether it is a list of LangChain's messages."""
        return (
            isinstance(value, list) and bool(value) and all(isinstance(each, dict) and _kwargs(each) for each in value)
        )

    def taken(self, record: Record, field: str) -> tuple[Any, Record]:  # noqa: ARG002 - the places are always the same
        """Return the messages of a run, the answer last."""
        if self.are_messages(at(record, ALL)):
            return at(record, ALL), put(record, ALL, None)
        asked, answered = at(record, ASKED), at(record, ANSWERED)
        single = isinstance(asked, list) and len(asked) == 1 and isinstance(answered, list) and len(answered) == 1
        if not single or not isinstance(answered[0], list) or len(answered[0]) != 1:
            return None, record
        answer = at(answered, (0, 0, "message"))
        if not self.are_messages(asked[0]) or not self.are_messages([answer]):
            return None, record
        rest = put(put(record, ASKED, None), ANSWERED, [[{**answered[0][0], "message": None}]])
        return [*asked[0], {**answer, ANSWER: True}], rest

    def given_back(self, record: Record, field: str, messages: list[Message]) -> Record:  # noqa: ARG002
        """Return the run with its messages, each where it was."""
        if not any(ANSWER in message for message in messages):
            return put(record, ALL, messages)
        *asked, last = messages
        answer = {name: value for name, value in last.items() if name != ANSWER}
        generation = at(record, (*ANSWERED, 0, 0))
        return put(put(record, ASKED, [asked]), ANSWERED, [[{**generation, "message": answer}]])

    def unpack(self, message: Message) -> Message:
        """Return a message with OpenAI's calls, out of its dump if it is in one."""
        found: Message = dict(_kwargs(message))
        if "lc" in message:
            found[DUMPED] = {**message, "kwargs": None}
        if isinstance(found.get("tool_calls"), list):
            found["tool_calls"] = [_renamed(call, "args", "arguments") for call in found["tool_calls"]]
        unpacked: Message = _renamed(found, "status", UNTOLD) if found.get("status") == "success" else found
        return unpacked

    def pack(self, message: Message) -> Message:
        """Return a message as the log has it."""
        found: Message = _renamed(message, UNTOLD, "status")
        if isinstance(found.get("tool_calls"), list):
            found["tool_calls"] = [_renamed(call, "arguments", "args") for call in found["tool_calls"]]
        if DUMPED not in found:
            return found
        return {**found[DUMPED], "kwargs": {name: value for name, value in found.items() if name != DUMPED}}


def _kwargs(message: Message) -> Message:
    inner = message.get("kwargs") if "lc" in message else message
    return inner if isinstance(inner, dict) and isinstance(inner.get("type"), str) else {}


def _renamed(value: Any, name: str, other: str) -> Any:
    return {other if key == name else key: each for key, each in value.items()}

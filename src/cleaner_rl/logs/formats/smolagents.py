"""`smolagents`: the steps of an agent's memory (`agent.memory.get_full_steps()`), as a JSON list or in a row's `steps`.

The list is the record. Its first step has the `task`. A step with `tool_calls` is a turn with its result: words and
program are in `model_output`, the program once more in `code_action` and in the call; `observations` is what it
printed, and `error` what it raised (`ActionStep` in smolagents' `memory.py`). An edit keeps the correction's step, with
the words of the failed one.

Limits: a step with several calls, and a plan, end what a repair can reach; such a record makes no SFT row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cleaner_rl.logs.entries import BORDER, MODEL, SYSTEM, USER, CallPlaces, EntryKind, ResultPlaces, at
from cleaner_rl.logs.formats.entries import EntriesFormat
from cleaner_rl.logs.frames import Message, put

WORDS, REST, CALLED = "cleaner_rl.words", "cleaner_rl.rest", "cleaner_rl.call"
"""Fields for the model's words before its program, for what follows them, and for the arguments of the call."""
OPENINGS = ("<code>", "```py", "Code:")
"""How a program begins in the model's output."""
OUTPUT, SAME_OUTPUT = ("model_output",), ("model_output_message", "content")
CALL = ("tool_calls", 0)
PLACES = CallPlaces((*CALL, "function", "name"), (CALLED,), (*CALL, "id"))
SAID = ((WORDS,),)
PRINTED = EntryKind(MODEL, SAID, call=PLACES, result=ResultPlaces(("observations",), (*CALL, "id")))
RAISED = EntryKind(MODEL, SAID, call=PLACES, result=ResultPlaces(("error", "message"), (*CALL, "id"), failed=True))


class SmolagentsFormat(EntriesFormat):
    """Reads and writes the steps of an agent."""

    name = "smolagents"
    fields = ("steps", "lines")
    sampling = (("token_usage",), ("timing",))

    def detects(self, record: object) -> bool:
        """Return whether a record has steps, one with a task and one of the agent."""
        if not isinstance(record, dict) or not super().detects(record):
            return False
        steps = record.get(self.field_of(record)) or []
        return any("task" in step for step in steps) and any("step_number" in step for step in steps)

    def kind_of(self, entry: Mapping[str, Any]) -> EntryKind:
        """Return what a step holds, and where."""
        if isinstance(entry.get("task"), str):
            return EntryKind(USER, (("task",),))
        if isinstance(entry.get("system_prompt"), str):
            return EntryKind(SYSTEM, (("system_prompt",),))
        if CALLED in entry:
            return RAISED if isinstance(at(entry, ("error", "message")), str) else PRINTED
        if "step_number" in entry and not entry.get("tool_calls"):
            return EntryKind(MODEL, (OUTPUT,))
        return EntryKind(BORDER, unread="a step that is not one call")

    def unpack(self, message: Message) -> Message:
        """Return a step with the model's words apart from its program, and the call's arguments as an object."""
        arguments, output = at(message, (*CALL, "function", "arguments")), message.get("model_output")
        if "step_number" not in message or len(message.get("tool_calls") or ()) != 1 or arguments is None:
            return message
        called = {"code": arguments} if isinstance(arguments, str) else arguments
        if not isinstance(output, str):
            return {**message, CALLED: called}
        cut = min((place for opening in OPENINGS if (place := output.find(opening)) >= 0), default=len(output))
        repeated = at(message, SAME_OUTPUT) == output
        apart = {**message, "model_output": None, CALLED: called, WORDS: output[:cut], REST: [output[cut:], repeated]}
        return put(apart, SAME_OUTPUT, None) if repeated else apart

    def pack(self, message: Message) -> Message:
        """Return a step as it is logged."""
        step = {name: value for name, value in message.items() if name not in (CALLED, WORDS, REST)}
        if REST not in message:
            return step
        rest, repeated = message[REST]
        output = message.get(WORDS, "") + rest
        return (
            put({**step, "model_output": output}, SAME_OUTPUT, output) if repeated else {**step, "model_output": output}
        )

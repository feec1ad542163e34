"""`openhands`: events of OpenHands, of both generations, in a file or in a row's `history`, `events` or `trajectory`.

- Version 1 (`openhands.sdk.event` of the software-agent-sdk): `kind` says what an event is. An `ActionEvent` has words
  in `thought` and the call in `tool_call`; events of one `llm_response_id` are one response. An `ObservationEvent` says
  in `observation.exit_code` and `observation.is_error` how the call ended; an `AgentErrorEvent` is a failure.
- Version 0 (`openhands/events/serialization` of OpenHands): an event has an `action` with `args`, or an `observation`
  with `content` and `extras`, where `metadata.exit_code` says how a command ended. `error` is a failed one.

Rows of data sets that have the chat instead of the events are of the format `openai` or `trajectory`.

Limits: no repair reaches across a condensation or a delegation. Version 0's `success` is not used: it is true of every
cell of IPython."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cleaner_rl.logs.entries import BORDER, MODEL, RESULT, SYSTEM, USER, CallPlaces, EntryKind, ResultPlaces, at
from cleaner_rl.logs.formats.entries import EntriesFormat
from cleaner_rl.logs.frames import Message, Path
from cleaner_rl.logs.messages import NOTE

RESPONSE = "cleaner_rl.response"
CALLED = "cleaner_rl.call"
"""Fields for the response that an event is of, and for what the model wrote of an action's `args`."""
HARNESS = {
    *("thought", "blocking", "hidden", "confirmation_state", "security_risk", "is_static", "cwd", "keep_prompt"),
    *("kernel_init_code", "include_extra", "impl_source", "is_confirmed", "wait_for_response"),
}
"""Those of `args` that OpenHands adds."""
ID = ("tool_call_id",)
OLD_ID = ("tool_call_metadata", "tool_call_id")
CALLS = ("tool_call_metadata", "model_response", "choices", 0, "message", "tool_calls")
"""The calls of the response that an event of version 0 is of."""
EXITS = {"exit_code": ("observation", "exit_code"), "is_error": ("observation", "is_error")}
KINDS = {
    "SystemPromptEvent": EntryKind(SYSTEM, (("system_prompt", "text"),)),
    "ObservationEvent": EntryKind(RESULT, result=ResultPlaces(("observation", "content"), ID, EXITS)),
    "AgentErrorEvent": EntryKind(RESULT, result=ResultPlaces(("error",), ID, failed=True)),
    "UserRejectObservation": EntryKind(RESULT, result=ResultPlaces(("rejection_reason",), ID, failed=True)),
    "ConversationStateUpdateEvent": EntryKind(NOTE),
    "TokenEvent": EntryKind(NOTE),
}
"""Of version 1, by `kind`."""
SPOKEN = ("llm_message", "content")
WORDS, THOUGHTS = (("thought",),), (("reasoning_content",),)
ACTIONS = {
    "system": EntryKind(SYSTEM, (("args", "content"),)),
    "recall": EntryKind(NOTE),
    "change_agent_state": EntryKind(NOTE),
    "condensation": EntryKind(BORDER),
    "delegate": EntryKind(BORDER),
}
OBSERVATIONS = {
    "error": EntryKind(RESULT, result=ResultPlaces(("content",), OLD_ID, failed=True)),
    "user_rejected": EntryKind(RESULT, result=ResultPlaces(("content",), OLD_ID, failed=True)),
    "agent_state_changed": EntryKind(NOTE),
    "null": EntryKind(NOTE),
    "recall": EntryKind(NOTE),
    "delegate": EntryKind(BORDER),
}
"""Of version 0; other actions are calls, and other observations results."""
EXIT_CODES = (("extras", "metadata", "exit_code"), ("extras", "exit_code"))


class OpenHandsFormat(EntriesFormat):
    """Reads and writes events of OpenHands."""

    name = "openhands"
    fields = ("history", "events", "trajectory", "lines")
    response = (RESPONSE,)
    sampling = (("llm_metrics",), ("critic_result",))

    def detects(self, record: object) -> bool:
        """Return whether a record has events, at least one of them the agent's."""
        if not isinstance(record, dict) or not super().detects(record):
            return False
        events = record.get(self.field_of(record), [])
        return all(map(_is_event, events)) and any(event.get("source") == "agent" for event in events)

    def kind_of(self, entry: Mapping[str, Any]) -> EntryKind:
        """Return what an event holds, and where."""
        if isinstance(entry.get("kind"), str):
            return _kind(entry, entry["kind"])
        if isinstance(entry.get("action"), str):
            return _action(entry, entry["action"])
        if isinstance(entry.get("observation"), str):
            return _observation(entry, entry["observation"])
        return EntryKind(BORDER)

    def unpack_all(self, messages: list[Message]) -> list[Message]:
        """Return the events as messages, those of one response together."""
        events: list[Message] = []
        left, response = 0, 0
        for number, event in enumerate(map(_unpacked, messages)):
            count = at(event, ("tool_call_metadata", "total_calls_in_response"))
            named = event.get("llm_response_id") or at(event, ("tool_call_metadata", "model_response", "id"))
            if named is None and CALLED in event:
                # The log says only how many calls there were, so they are the next ones.
                if not left:
                    left, response = count if isinstance(count, int) and count > 0 else 1, number
                left -= 1
                named = f"response {response}"
            events.append(event if named is None else {**event, RESPONSE: named})
        return super().unpack_all(events)

    def pack(self, message: Message) -> Message:
        """Return an event as it is logged."""
        event = {name: value for name, value in message.items() if name not in (RESPONSE, CALLED, "thought")}
        if CALLED in message:
            order, arguments = message[CALLED]["order"], message[CALLED]["arguments"]
            args = {**event["args"], **arguments, **({"thought": message["thought"]} if "thought" in message else {})}
            names = [*(name for name in order if name in args), *(name for name in args if name not in order)]
            return {**event, "args": {name: args[name] for name in names}}
        return {name: value for name, value in message.items() if name != RESPONSE}


def _is_event(event: Mapping[str, Any]) -> bool:
    return "source" in event and any(isinstance(event.get(name), str) for name in ("kind", "action", "observation"))


def _kind(event: Mapping[str, Any], kind: str) -> EntryKind:
    if kind == "MessageEvent":
        role = at(event, ("llm_message", "role"))
        return EntryKind(MODEL if role == "assistant" else USER, (SPOKEN,), (("llm_message", "reasoning_content"),))
    if kind == "ActionEvent":
        inner = ("function", "arguments") if at(event, ("tool_call", "function")) else ("arguments",)
        return EntryKind(MODEL, WORDS, THOUGHTS, CallPlaces(("tool_name",), ("tool_call", *inner), ID))
    return KINDS.get(kind, EntryKind(BORDER))


def _action(event: Mapping[str, Any], action: str) -> EntryKind:
    by_agent = event.get("source") == "agent"
    if action == "message":
        return EntryKind(MODEL if by_agent else USER, (("args", "content"),))
    if action == "finish" and by_agent:
        return EntryKind(MODEL, (("args", "final_thought"), ("args", "thought")))
    if action in ACTIONS or not by_agent:
        return ACTIONS.get(action, EntryKind(BORDER))
    name: tuple[str, ...] | str = ("tool_call_metadata", "function_name") if at(event, OLD_ID) else action
    return EntryKind(MODEL, WORDS, call=CallPlaces(name, _written(event) or (CALLED, "arguments"), OLD_ID))


def _written(event: Mapping[str, Any]) -> Path | None:
    """Return where an event has the arguments as the model wrote them; None if it hasn't got the response.

    `args` is what OpenHands made of them: a `view` has lost its `command` there.
    """
    calls = at(event, CALLS)
    for index, call in enumerate(calls if isinstance(calls, list) else []):
        if isinstance(at(call, ("function", "arguments")), str) and call.get("id") == at(event, OLD_ID):
            return (*CALLS, index, "function", "arguments")
    return None


def _observation(event: Mapping[str, Any], observation: str) -> EntryKind:
    if observation in OBSERVATIONS:
        return OBSERVATIONS[observation]
    # -1 is OpenHands' word for a command that is still running.
    known = next((place for place in EXIT_CODES if isinstance(at(event, place), int) and at(event, place) >= 0), None)
    fields = {} if known is None else {"exit_code": known}
    return EntryKind(RESULT, result=ResultPlaces(("content",), OLD_ID, fields))


def _unpacked(event: Message) -> Message:
    """Return an event with what the model wrote of its `args` apart from the rest."""
    args = event.get("args")
    kind = _action(event, event["action"]) if isinstance(event.get("action"), str) else EntryKind(BORDER)
    if isinstance(event.get("kind"), str) or kind.call is None or not isinstance(args, dict) or "thought" in event:
        return event
    own = {name for name in args if name not in HARNESS or (name == "thought" and event["action"] == "think")}
    called = {"order": list(args), "arguments": {name: value for name, value in args.items() if name in own}}
    rest = {name: value for name, value in args.items() if name not in own and name != "thought"}
    said = {"thought": args["thought"]} if "thought" in args and "thought" not in own else {}
    return {**event, "args": rest, CALLED: called, **said}

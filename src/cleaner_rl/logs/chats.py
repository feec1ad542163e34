"""Writes messages of any source in OpenAI's form, which chat templates and trainers read.

Arguments are objects, as chat templates want them: text is quoted twice by some and crashes others. Plain text, and
JSON that is broken, are the value of `RAW`. Reasoning is in `reasoning_content`, as the templates
of reasoning models expect it. Everything that only describes a message (ids, times, usage) is left behind.

Limits: what isn't text, a call or a result has no place in it. A trajectory with such a thing has no chat: one with a
hole in it would teach to answer what nobody asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from cleaner_rl.logs.formats.base import Conversation, Record, inside
from cleaner_rl.logs.frames import Path
from cleaner_rl.logs.messages import (
    CALL_FIELDS,
    REASONING_FIELDS,
    Dialect,
    Unreadable,
    called,
    written,
)
from cleaner_rl.logs.parts import leaves, unread
from cleaner_rl.tools import feedback, read_json
from cleaner_rl.trajectory import TextSpan, Trajectory

END_TOKENS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end|>", "<end_of_turn>", "</s>")
UNREAD_FIELDS = ("refusal", "audio", "images", "videos")
"""Fields of a message that are content no less than its content."""
RAW = "input"
"""The only argument of a call that was made with plain text, as of Codex's freeform tools, or with broken JSON."""
COMPACTIONS = {"compact_boundary", "compacted", "compaction", "context_compacted"}
"""What entries are called that say that the model goes on with a summary."""
TOOL_FIELDS = {"input_schema": "parameters"}
"""Anthropic's names of what a tool is, in OpenAI's."""


def chat_of(trajectory: Trajectory[TextSpan], dialect: Dialect, tools: Any) -> Conversation:
    """Return a trajectory that was read from messages of this dialect as a chat, with the tools that its log names.

    Raises `Unreadable` if a message holds what has no place in a chat.
    """
    prompt, groups = written(trajectory, dialect)
    chat = Conversation([], [], _tools(tools))
    writer = _Writer(chat, dialect)
    for message in prompt:
        writer.add(message)
    for number, (said, *others) in enumerate(groups):
        writer.add(said, number)
        for message in others:
            writer.add(message)
    return chat


def chat_of_rollout(trajectory: Trajectory[Any]) -> Conversation | None:
    """Return one of our own rollouts as a chat; None if it was stored without the messages of its task."""
    before = trajectory.info.messages
    if before is None:
        return None
    chat = Conversation([dict(each) for each in before], [None] * len(before), _tools(trajectory.info.tools))
    for number, turn in enumerate(trajectory.turns):
        chat.add({"role": "assistant", "content": _unended(turn.text)}, number)
        for call, result in zip(turn.calls, turn.results, strict=False):
            chat.add({"role": "tool", "content": feedback(result), "name": call.name})
    return chat


def _unended(text: str) -> str:
    """Return the text without the token that ends a turn: the chat template adds it again."""
    return next((text.removesuffix(token) for token in END_TOKENS if text.endswith(token)), text)


class _Writer:
    """Adds messages of one dialect to a chat, each result with the id and the name of its call."""

    def __init__(self, chat: Conversation, dialect: Dialect) -> None:
        self._chat, self._dialect = chat, dialect
        self._open: dict[str, str] = {}
        """The names of the calls that have no result yet, by id, in order."""

    def add(self, message: Record, turn: int | None = None) -> None:
        """Add a message, and the results that it holds."""
        dialect = self._dialect
        if (reason := _unread(message, dialect)) is not None:
            raise Unreadable(reason)
        role = str(message.get(dialect.role, "user"))
        if role in dialect.notes:
            for summary in _compactions(message):
                self._chat.restart(summary)
            return
        content = message.get(dialect.content)
        results = [(each.call_id, _joined(each.texts), None) for each in dialect.parts.results(content, ())]
        made = _message(message, dialect.openai_role(role), dialect)
        if turn is not None:
            self._say(made, turn)
        for result in results:
            self._answer(*result)
        if role in dialect.tools and not results:
            # Inspect has the words of a call that failed in `error` alone, and shows them to the model.
            error = inside(message, "error").get("message")
            text = _text(content) or (error if isinstance(error, str) else "")
            self._answer(message.get("tool_call_id"), text, message.get("name"))
        elif turn is None and (not results or any(value for name, value in made.items() if name != "role")):
            self._say(made)
        for result in message["observation"]["results"] if message.get("observation") else []:
            self._answer(result.get("source_call_id"), _text(result.get("content")))

    def _say(self, made: Record, turn: int | None = None) -> None:
        self._chat.add(made, turn)
        self._open |= {call["id"]: call["function"]["name"] for call in made.get("tool_calls", ())}

    def _answer(self, call_id: object, text: str, name: object = None) -> None:
        """Add a result. One without an id is that of the first call which has none yet."""
        known = call_id if isinstance(call_id, str) else next(iter(self._open), None)
        called = self._open.pop(known, None) if known is not None else None
        found = {"name": name if isinstance(name, str) else called, "tool_call_id": known}
        answer = {"role": "tool", "content": text, **{key: value for key, value in found.items() if value is not None}}
        self._chat.add(answer)


def _unread(message: Record, dialect: Dialect) -> str | None:
    """Return what a message holds that a chat can't hold; None if there is no such thing."""
    role = message.get(dialect.role)
    spoken, content = role in dialect.assistants, message.get(dialect.content)
    beside = (*UNREAD_FIELDS, *((*REASONING_FIELDS, *CALL_FIELDS) if role in dialect.tools else ()))
    for name in beside if spoken else (*beside, "observation"):
        if message.get(name):
            return f"a message with the role {role} and `{name}`"
    for name, kind in (*((name, str) for name in REASONING_FIELDS), ("tool_calls", list), ("function_call", dict)):
        if message.get(name) and not isinstance(message[name], kind):
            return f"a `{name}` with an unknown structure"
    for _, _, name, arguments in called(message, dialect):
        if not name or not isinstance(arguments, str | dict):
            return "a call without a name or without arguments"
    return dialect.parts.unread(content, calls=role not in dialect.tools, results=not spoken) or _unread_results(
        message.get("observation")
    )


def _unread_results(observation: object) -> str | None:
    if not observation:
        return None
    results = observation.get("results") if isinstance(observation, dict) else None
    if not isinstance(results, list) or not all(isinstance(each, dict) for each in results):
        return "an `observation` without results"
    return next(filter(None, (unread(each.get("content")) for each in results)), None)


def _message(message: Record, role: str, dialect: Dialect) -> Record:
    content = message.get(dialect.content)
    texts = [(text, dialect.parts.is_thought(content, path)) for path, text in dialect.parts.texts(content, ())]
    made: Record = {"role": role, "content": "\n".join(text for text, thought in texts if not thought)}
    thoughts = [message[name] for name in REASONING_FIELDS if isinstance(message.get(name), str)]
    thoughts += [text for text, thought in texts if thought]
    if thoughts:
        made["reasoning_content"] = "\n".join(thoughts)
    calls = [
        {
            "id": call_id if isinstance(call_id, str) else f"call_{index}",
            "type": "function",
            "function": {"name": name, "arguments": arguments_of(arguments)},
        }
        for index, (_, call_id, name, arguments) in enumerate(called(message, dialect))
    ]
    if calls:
        made["tool_calls"] = calls
    return made


def arguments_of(written: object) -> Record:
    """Return a call's arguments as an object."""
    found = _opened(written)
    return found if isinstance(found, dict) else {RAW: written}


def _compactions(note: Record) -> Iterator[str | None]:
    """Yield of each compaction that a note holds the summary that it has; None if the summary is a message."""
    for entry in (each for value in note.values() for each in (value if isinstance(value, list) else [value])):
        payload = inside(entry, "payload")
        if isinstance(entry, dict) and COMPACTIONS & {
            *map(str, map(entry.get, ("type", "subtype"))),
            str(payload.get("type")),
        }:
            found = entry.get("summary") or payload.get("message")
            yield found if isinstance(found, str) else None


def _joined(texts: Iterable[tuple[Path, str]]) -> str:
    return "\n".join(text for _, text in texts)


def _text(content: object) -> str:
    return _joined(leaves(content, ()))


def _tools(tools: Any) -> list[Record] | None:
    """Return tools in OpenAI's form. They may have any of the common forms, and all or each may be JSON text."""
    tools = _opened(tools)
    if not tools:
        return None
    tools = list(map(_opened, tools)) if isinstance(tools, list) else None
    if tools is None or not all(isinstance(tool, dict) for tool in tools):
        raise Unreadable("tools with an unknown structure")
    return [
        tool
        if "function" in tool
        else {
            "type": "function",
            "function": {TOOL_FIELDS.get(name, name): value for name, value in tool.items() if name != "type"},
        }
        for tool in tools
    ]


def _opened(value: Any) -> Any:
    try:
        return read_json(value) if isinstance(value, str) and value else value
    except ValueError:
        return value

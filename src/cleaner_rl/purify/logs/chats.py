"""Messages of any source in OpenAI's form: what chat templates and trainers read.

Arguments are JSON text, as on OpenAI's wire; reasoning stands in `reasoning_content`, as the templates of reasoning
models expect it. Everything that only describes a message (ids, times, usage) is left behind."""

from __future__ import annotations

import json
from typing import Any

from cleaner_rl.purify.logs.formats.base import Chat, Record
from cleaner_rl.purify.logs.messages import REASONING_FIELDS, TOOLS, Dialect, called, leaves, written
from cleaner_rl.tools import feedback
from cleaner_rl.trajectory import TextSpan, Trajectory

END_TOKENS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end|>", "<end_of_turn>", "</s>")
ROLES = {"agent": "assistant"}


def chat_of(trajectory: Trajectory[TextSpan], dialect: Dialect, tools: Any) -> Chat:
    """A trajectory that was read from messages of this dialect, with the tools that its log names."""
    prompt, groups = written(trajectory, dialect)
    chat = Chat([], [], _tools(tools))
    for message in prompt:
        chat.add(_message(message, dialect))
    for number, (said, *others) in enumerate(groups):
        chat.add(_message(said, dialect), number)
        observation = said.get("observation")
        results = observation.get("results") if isinstance(observation, dict) else None
        for result in results if isinstance(results, list) else []:
            if isinstance(result, dict):
                chat.add(_result(result.get("source_call_id"), _text(result.get("content"))))
        for message in others:
            chat.add(_message(message, dialect))
    return chat


def chat_of_rollout(trajectory: Trajectory[Any]) -> Chat | None:
    """One of our own rollouts, whose task's messages it was stored with; None if it wasn't."""
    before: Any = trajectory.extra.get("messages")
    if not isinstance(before, list):
        return None
    chat = Chat([dict(each) for each in before], [None] * len(before), _tools(trajectory.extra.get("tools")))
    for number, turn in enumerate(trajectory.turns):
        chat.add({"role": "assistant", "content": _unended(turn.text)}, number)
        for result in turn.results:
            chat.add({"role": "tool", "content": feedback(result)})
    return chat


def _unended(text: str) -> str:
    """Without the token that ends a turn: the template sets it again."""
    return next((text.removesuffix(token) for token in END_TOKENS if text.endswith(token)), text)


def _message(message: Record, dialect: Dialect) -> Record:
    content = message.get(dialect.content)
    role = str(message.get(dialect.role, "user"))
    if role in TOOLS:
        return _result(message.get("tool_call_id"), _text(content))
    made: Record = {"role": ROLES.get(role, role), "content": _text(content, thoughts=False)}
    thoughts = [message[name] for name in REASONING_FIELDS if isinstance(message.get(name), str)]
    thoughts += [text for path, text in leaves(content, ()) if path and path[-1] != "text"]
    if thoughts:
        made["reasoning_content"] = "\n".join(thoughts)
    calls = [
        {
            "id": call_id if isinstance(call_id, str) else f"call_{index}",
            "type": "function",
            "function": {
                "name": name,
                "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False),
            },
        }
        for index, (_, call_id, name, arguments) in enumerate(called(message))
    ]
    if calls:
        made["tool_calls"] = calls
    return made


def _result(call_id: object, text: str) -> Record:
    return {"role": "tool", "content": text, **({"tool_call_id": call_id} if isinstance(call_id, str) else {})}


def _text(content: object, thoughts: bool = True) -> str:
    return "\n".join(text for path, text in leaves(content, ()) if thoughts or not path or path[-1] == "text")


def _tools(tools: Any) -> list[Record] | None:
    """Tools in OpenAI's form, whichever of the two common ones they have."""
    if not isinstance(tools, list) or not tools:
        return None
    return [
        tool
        if "function" in tool
        else {"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}}
        for tool in tools
        if isinstance(tool, dict)
    ]

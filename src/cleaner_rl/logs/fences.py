"""Finds calls that are fenced blocks in a text, as agents without function calling write them.

A text with a call becomes the parts of a content: the words before it, the call, the words behind it. Put together
again they are that text, character for character.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from cleaner_rl.logs.frames import Message
from cleaner_rl.logs.parts import is_call

FENCE = "```"
PYTHON = {"python", "py", "python3"}
BORDERS = "fence"
"""The field of such a call that has the lines around the program."""
FORMER = "cleaner_rl.role"
"""The field for the role that a result had."""


class Block(NamedTuple):
    """A fenced block: where it is, its language, and where its program is."""

    start: int
    end: int
    language: str
    program_start: int
    program_end: int

    def program(self, text: str) -> str:
        """Return its program."""
        return text[self.program_start : self.program_end]


def blocks(text: str) -> Iterator[Block]:
    """Yield the fenced blocks of a text, in one pass over its lines."""
    position = start = inner = 0
    language: str | None = None
    for line in text.splitlines(keepends=True):
        bare = line.strip()
        if language is None and bare.startswith(FENCE) and FENCE not in bare[3:]:
            start, inner, language = position, position + len(line), bare[3:].strip()
        elif language is not None and bare == FENCE:
            close = position + len(line.rstrip("\r\n"))
            yield Block(start, close, language, inner, max(inner, position - 1))
            language = None
        position += len(line)


def with_calls(messages: Iterable[Message], is_call_block: Callable[[Message, Block], bool]) -> list[Message]:
    """Return messages, each text with exactly one such block as parts, and the user's reply to it as the result."""
    found: list[Message] = []
    for message in messages:
        content = message.get("content")
        parts = _parts(message, content, is_call_block) if isinstance(content, str) else None
        if parts is not None:
            found.append({**message, "content": parts})
        elif message.get("role") == "user" and found and _has_call(found[-1]):
            found.append({**message, "role": "tool", FORMER: "user"})
        else:
            found.append(message)
    return found


def without_calls(message: Message) -> Message:
    """Return a message as it was before `with_calls`. After a graft, the call is the last of its parts."""
    if _has_call(message):
        return {**message, "content": "".join(map(_text, message["content"]))}
    if FORMER in message:
        rest = {name: value for name, value in message.items() if name != FORMER}
        return {**rest, "role": message[FORMER]}
    return message


def _parts(message: Message, text: str, is_call_block: Callable[[Message, Block], bool]) -> list[dict[str, Any]] | None:
    found = [block for block in blocks(text) if is_call_block(message, block)]
    if len(found) != 1:
        return None
    (block,) = found
    name, argument = ("python", "code") if block.language.lower() in PYTHON else ("bash", "command")
    borders = [text[block.start : block.program_start], text[block.program_end : block.end]]
    call = {"type": "tool_use", "name": name, "input": {argument: block.program(text)}, BORDERS: borders}
    before, after = text[: block.start], text[block.end :]
    return [{"type": "text", "text": before}, call, *([{"type": "text", "text": after}] if after else [])]


def _has_call(message: Message) -> bool:
    content = message.get("content")
    return isinstance(content, list) and any(is_call(part) and BORDERS in part for part in content)


def _text(part: dict[str, Any]) -> str:
    if BORDERS not in part:
        return str(part["text"])
    opening, closing = part[BORDERS]
    (program,) = part["input"].values()
    return f"{opening}{program}{closing}"

"""Finds calls that are fenced or tagged blocks in a text, as agents without function calling write them.

A text with a call becomes the parts of a content: the words before it, the call, the words behind it. Put together
again they are that text, character for character.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from cleaner_rl.logs.frames import Message
from cleaner_rl.logs.messages import CALL_FIELDS, Dialect
from cleaner_rl.logs.parts import is_call

FENCE = "```"
PYTHON = {"python", "py", "python3"}
TAGS = {"<execute>": "python", "<execute_ipython>": "python", "<execute_bash>": "bash"}
"""Tags around programs, as CodeAct's agents write them, each with the language of its program."""
BORDERS = "fence"
"""The field of such a call that has the lines around the program."""
RESULT_WORDS = (
    *("OBSERVATION:", "Observation:", "EXECUTION RESULT of [", "<returncode>", "Output:\n"),
    *("Execution output:", "Execution result:"),
)
"""How a message begins in which a program tells the model what its command gave."""
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


IsCommand: TypeAlias = Callable[[Message, Block, str], bool]
"""Whether a block of a message's text is its command."""
Named: TypeAlias = Callable[[Block, str], tuple[str, str]]
"""The name of the tool that a block calls, and of the argument that its program is."""


def blocks(text: str) -> Iterator[Block]:
    """Yield the fenced blocks of a text, in one pass over its lines."""
    position = start = inner = 0
    language: str | None = None
    closing = FENCE
    for line in text.splitlines(keepends=True):
        bare = line.strip()
        if language is None and bare in TAGS:
            start, inner, language, closing = position, position + len(line), TAGS[bare], f"</{bare[1:]}"
        elif language is None and bare.startswith(FENCE) and FENCE not in bare[3:]:
            start, inner, language, closing = position, position + len(line), bare[3:].strip(), FENCE
        elif language is not None and bare == closing:
            close = position + len(line.rstrip("\r\n"))
            yield Block(start, close, language, inner, max(inner, position - 1))
            language = None
        position += len(line)


def of_language(block: Block, text: str) -> tuple[str, str]:  # noqa: ARG001 - one of the ways to know a tool
    """Return Python's tool for a block of Python, and a shell's for any other."""
    return ("python", "code") if block.language.lower() in PYTHON else ("bash", "command")


def with_calls(
    messages: Sequence[Message],
    dialect: Dialect,
    is_command: IsCommand,
    *,
    told: bool = False,
    named: Named = of_language,
) -> list[Message]:
    """Return messages with commands as calls: a text with exactly one block that is a command becomes parts.

    The user's message behind it is the result. `told`: only if that begins with a word for results; in a chat with a
    person, a block may as well be an example. `named` says which tool a block calls.
    """
    content = dialect.content
    found: list[Message] = []
    for message, reply in zip(messages, [*messages[1:], {}], strict=True):
        text = message.get(content)
        if found and _has_call(found[-1].get(content)) and message.get(dialect.role) in dialect.users:
            found.append({**message, dialect.role: dialect.tools[0], FORMER: message[dialect.role]})
        elif (
            isinstance(text, str)
            and message.get(dialect.role) in dialect.assistants
            and (not told or _tells(reply, dialect))
        ):
            parts = _parts(message, text, is_command, named)
            found.append(message if parts is None else {**message, content: parts})
        else:
            found.append(message)
    return found


def without_calls(message: Message, dialect: Dialect) -> Message:
    """Return a message as it was before `with_calls`. After a graft, the call is the last of its parts."""
    if _has_call(message.get(dialect.content)):
        return {**message, dialect.content: "".join(map(_text, message[dialect.content]))}
    if FORMER in message:
        rest = {name: value for name, value in message.items() if name != FORMER}
        return {**rest, dialect.role: message[FORMER]}
    return message


def are_plain(messages: Sequence[Message]) -> bool:
    """Return whether no message has calls in a field."""
    return not any(message.get(name) for message in messages for name in CALL_FIELDS)


def ends_with(message: Message, block: Block, text: str) -> bool:  # noqa: ARG001 - one of the ways to know a command
    """Return whether a block ends its message."""
    return not text[block.end :].strip()


def _tells(message: Message, dialect: Dialect) -> bool:
    text = message.get(dialect.content)
    return message.get(dialect.role) in dialect.users and isinstance(text, str) and text.startswith(RESULT_WORDS)


def _parts(message: Message, text: str, is_command: IsCommand, named: Named) -> list[dict[str, Any]] | None:
    found = [block for block in blocks(text) if is_command(message, block, text)]
    if len(found) != 1:
        return None
    (block,) = found
    name, argument = named(block, text)
    borders = [text[block.start : block.program_start], text[block.program_end : block.end]]
    call = {"type": "tool_use", "name": name, "input": {argument: block.program(text)}, BORDERS: borders}
    before, after = text[: block.start], text[block.end :]
    return [{"type": "text", "text": before}, call, *([{"type": "text", "text": after}] if after else [])]


def _has_call(content: object) -> bool:
    return isinstance(content, list) and any(is_call(part) and BORDERS in part for part in content)


def _text(part: dict[str, Any]) -> str:
    if BORDERS not in part:
        return str(part["text"])
    opening, closing = part[BORDERS]
    (program,) = part["input"].values()
    return f"{opening}{program}{closing}"

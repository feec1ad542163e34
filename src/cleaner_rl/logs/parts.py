"""Looks into the content of a message: a text, or a list of texts and parts.

Parts with text are known by their type, in the spellings of OpenAI, Inspect and Anthropic. Anthropic's `tool_use` is a
call, and its `tool_result` a result.

Limits: pictures, sounds, documents, and calls that a provider ran itself aren't looked into. They stay where they are,
and `unread` names the first of them, because a chat of text would be without it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

from cleaner_rl.logs.frames import Frame, Path, graft_parts

PART_FIELDS = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "summary_text": "text",
    "reasoning_text": "text",
    "reasoning": "reasoning",
    "thinking": "thinking",
}
"""Of a content's part by its type, the field that holds its text."""
THOUGHTS = ("reasoning", "thinking")
"""Those of them that the model doesn't say."""

Found: TypeAlias = tuple[Path, object, str, object]
"""Of a call: where its arguments are, its id, its name, and the arguments."""


class Told(NamedTuple):
    """A result that is a part of a content."""

    call_id: object
    texts: list[tuple[Path, str]]
    fields: Mapping[str, Any]
    """Those that may say how the call ended."""


class Parts(Protocol):
    """Reads the parts of a content."""

    answered: bool
    """Whether the results of calls are in the same message as the calls."""

    def texts(self, content: object, path: Path) -> Iterator[tuple[Path, str]]:
        """Yield the texts of a content and where they are, except those of results."""
        ...

    def is_thought(self, content: object, path: Path) -> bool:
        """Return whether the text at this place of a content is a thought, which the model doesn't say."""
        ...

    def calls(self, content: object, path: Path) -> Iterator[Found]:
        """Yield the calls among the parts."""
        ...

    def results(self, content: object, path: Path) -> Iterator[Told]:
        """Yield the results among the parts."""
        ...

    def grafted(self, failed: Frame, correction: Frame, name: str) -> Frame:
        """Return the failed message with the calls among the correction's parts in place of its own."""
        ...

    def unread(self, content: object, *, calls: bool, results: bool) -> str | None:
        """Return what a content holds that a chat can't hold; None if there is nothing else."""
        ...


class ChatParts:
    """The parts of chat messages, in the spellings of OpenAI, Inspect and Anthropic."""

    answered = False

    def texts(self, content: object, path: Path) -> Iterator[tuple[Path, str]]:
        """Yield the texts of a content and where they are, except those of results."""
        return leaves(content, path)

    def is_thought(self, content: object, path: Path) -> bool:  # noqa: ARG002 - the name of the field says it
        """Return whether the text at this place is a thought."""
        return bool(path) and path[-1] in THOUGHTS

    def calls(self, content: object, path: Path) -> Iterator[Found]:
        """Yield Anthropic's `tool_use` parts."""
        for index, part in parts_of(content):
            if is_call(part):
                yield (*path, index, "input"), part.get("id"), part["name"], part["input"]

    def results(self, content: object, path: Path) -> Iterator[Told]:
        """Yield Anthropic's `tool_result` parts."""
        for index, part in parts_of(content):
            if is_result(part):
                texts = list(leaves(part.get("content"), (*path, index, "content")))
                yield Told(part.get("tool_use_id"), texts, part)

    def grafted(self, failed: Frame, correction: Frame, name: str) -> Frame:
        """Return the failed message with the correction's `tool_use` parts."""
        if not has_calls(correction.message.get(name)):
            return failed
        return graft_parts(failed, correction, name, is_call)

    def unread(self, content: object, *, calls: bool, results: bool) -> str | None:
        """Return what a content holds that isn't text; None if there is nothing else."""
        return unread(content, calls=calls, results=results)


CHAT_PARTS = ChatParts()


def parts_of(content: object) -> Iterator[tuple[int, Any]]:
    """Yield the parts of a content with their indices; none if it is a text, or nothing."""
    return enumerate(content if isinstance(content, list) else [])


def leaves(content: object, path: Path) -> Iterator[tuple[Path, str]]:
    """Yield the texts of a content and where they stand, except those of results."""
    if isinstance(content, str):
        yield path, content
    for index, part in parts_of(content):
        name = PART_FIELDS.get(str(part.get("type"))) if isinstance(part, dict) else None
        if isinstance(part, str):
            yield (*path, index), part
        elif name is not None and isinstance(part.get(name), str):
            yield (*path, index, name), part[name]


def is_call(part: object) -> bool:
    """Return whether a part is a call. Inspect's `tool_use`, which a provider ran itself, has no `input`."""
    return (
        isinstance(part, dict)
        and part.get("type") == "tool_use"
        and isinstance(part.get("name"), str)
        and isinstance(part.get("input"), dict)
    )


def is_result(part: object) -> bool:
    """Return whether a part is what a call gave."""
    return isinstance(part, dict) and part.get("type") == "tool_result"


def has_calls(content: object) -> bool:
    """Return whether a content holds calls."""
    return any(is_call(part) for _, part in parts_of(content))


def unread(content: object, *, calls: bool = False, results: bool = False) -> str | None:
    """Return what a content holds that isn't text; None if there is nothing else.

    `calls`, `results`: it may hold them, too.
    """
    if content is not None and not isinstance(content, str | list):
        return "a content that is neither text nor parts"
    for _, part in parts_of(content):
        if results and is_result(part):
            found = unread(part.get("content"))
        elif calls and is_call(part):
            found = None
        else:
            found = _unread_part(part)
        if found is not None:
            return found
    return None


def _unread_part(part: Any) -> str | None:
    if not part or isinstance(part, str):
        return None
    if not isinstance(part, dict):
        return "a content with a part that is not an object"
    name = PART_FIELDS.get(str(part.get("type")))
    if name is not None and (not part.get(name) or isinstance(part[name], str)):
        return None
    return f"a content with a part of the type {part.get('type', 'unknown')}"

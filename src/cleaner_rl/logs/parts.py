"""Looks into the content of a message: a text, or a list of texts and parts.

Parts with text are known by their type, in the spellings of OpenAI, Inspect and Anthropic. Anthropic's `tool_use` is a
call, and its `tool_result` a result.

Limits: pictures, sounds, documents, and calls that a provider ran itself aren't looked into. They stay where they are,
and `unread` names the first of them, because a chat of text would be without it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cleaner_rl.logs.frames import Path

PART_FIELDS = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "reasoning": "reasoning",
    "thinking": "thinking",
}
"""Of a content's part by its type, the field that holds its text."""
THOUGHTS = ("reasoning", "thinking")
"""Those of them that the model doesn't say."""


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

"""Reads JSON that is text in a field, and writes it again in the style that it had."""

from __future__ import annotations

import json
from typing import Any

from cleaner_rl.logs.messages import Unreadable
from cleaner_rl.tools import read_json

STYLES: tuple[dict[str, Any], ...] = tuple(
    {"ensure_ascii": ascii_only, **spacing}
    for ascii_only in (True, False)
    for spacing in ({}, {"separators": (",", ":")}, {"indent": 2}, {"indent": 4})
)


def opened(text: str) -> tuple[Any, int]:
    """Return the value of a JSON text, and its style. Raises `Unreadable` if it would be written differently."""
    try:
        value = read_json(text)
    except ValueError:
        raise Unreadable("a text that is not valid JSON") from None
    style = next((number for number in range(len(STYLES)) if closed(value, number) == text), None)
    if style is None:
        raise Unreadable("JSON text that would be written differently")
    return value, style


def closed(value: Any, style: int) -> str:
    """Return a value as JSON text of a style."""
    return json.dumps(value, **STYLES[style])

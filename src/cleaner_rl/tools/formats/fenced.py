"""Calls as fenced Python: a ```python block is a program for the one tool that runs code.

A fence closes on a line of its own, so a program may hold backticks. Other fenced blocks (plain, `text`, `json`) are
talk.
"""

from __future__ import annotations

import re

from cleaner_rl.tools.calls import ToolCall, ToolSet
from cleaner_rl.tools.formats.base import NOT_UNICODE, ParsedText, is_unicode, parse_with

OPEN = re.compile(r"^```[ \t]*(?:python|py)[ \t]*(?:\r?\n|\Z)", re.IGNORECASE | re.MULTILINE)
CLOSE = re.compile(r"^```[ \t]*(?=\r?$)", re.MULTILINE)


class FencedFormat:
    """Programs in fenced blocks."""

    def parse(self, text: str, tools: ToolSet) -> ParsedText:
        """Every program in the text, closed or not."""
        return parse_with(text, OPEN, lambda opening: _read(text, opening, tools))


def _read(text: str, opening: re.Match[str], tools: ToolSet) -> ToolCall:
    start, body = opening.span()
    closing = CLOSE.search(text, body)
    code = text[body : closing.start() if closing else len(text)]
    runner = next((tool for tool in tools.values() if tool.code_argument is not None), None)
    if runner is None or runner.code_argument is None:
        problem = "There is no tool that runs programs."
        return ToolCall("", {}, code, start, closing.end() if closing else len(text), problem)
    if closing is None:
        problem = "The program's block has no closing ``` on a line of its own."
        return ToolCall(runner.name, {}, code, start, len(text), problem)
    if not is_unicode(code):
        return ToolCall(runner.name, {}, "", start, closing.end(), NOT_UNICODE)
    return tools.read(runner.name, {runner.code_argument: code}, start, closing.end())

"""Calls as Hermes and Qwen write them: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`.

The JSON value is read first and the closing tag looked for behind it, so a program may print the tag. JSON is taken
strictly (no raw line breaks in strings, no NaN), as the servers take it that such models are deployed on.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace

from cleaner_rl.tools.calls import ToolCall, ToolSet
from cleaner_rl.tools.formats.base import (
    NOT_UNICODE,
    STRICT_JSON,
    TOO_DEEP,
    ParsedText,
    is_unicode,
    parse_with,
)
from cleaner_rl.tools.json_values import is_too_deep

OPEN, CLOSE = "<tool_call>", "</tool_call>"
OPENING = re.compile(OPEN)
EXAMPLE = OPEN + '{"name": "…", "arguments": {…}}' + CLOSE
ESCAPE = re.compile(r'\\(["\\/nrt])')
ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}
SPACE = re.compile(r"\s*")
FIRST_PIECE = 4_096
LONGEST_LEXEME = 16
"""Characters of an escape or a word of JSON, with some to spare: closer to the end a piece may just be cut off."""


class HermesFormat:
    """JSON calls between tags."""

    def parse(self, text: str, tools: ToolSet) -> ParsedText:
        """Every call in the text, runnable or not."""
        return parse_with(text, OPENING, lambda opening: _read(text, opening.start(), tools))


def _read(text: str, start: int, tools: ToolSet) -> ToolCall:
    body = _skip_space(text, start + len(OPEN))
    try:
        value, after = _decode(text, body)
    except (ValueError, RecursionError) as error:
        end = _unclosed_end(text, body)
        code = _salvage(text[body:end].removesuffix(CLOSE), tools)
        return ToolCall("", {}, code, start, end, _explain(error, text, body))
    close = _skip_space(text, after)
    closed = text.startswith(CLOSE, close)
    call = _of_value(value, tools, start, close + len(CLOSE) if closed else _unclosed_end(text, after))
    return call if closed else replace(call, problem=f"The tool call has no closing {CLOSE} right after its JSON.")


def _decode(text: str, start: int) -> tuple[object, int]:
    """Return the JSON value that begins here, and where it ends.

    A decoder that fails looks at all of its text up to there, to tell the line. A model that has lost its way writes
    thousands of opening tags, so it gets no more text than it needs.
    """
    size = FIRST_PIECE
    while True:
        piece = text[start : start + size]
        whole = len(piece) == len(text) - start
        try:
            value, end = STRICT_JSON.raw_decode(piece)
            if whole or end < len(piece):
                return value, start + end
        except json.JSONDecodeError as error:
            cut = error.pos > len(piece) - LONGEST_LEXEME or error.msg.startswith("Unterminated string")
            if whole or not cut:
                raise
        size *= 4


def _of_value(value: object, tools: ToolSet, start: int, end: int) -> ToolCall:
    if not isinstance(value, dict):
        return ToolCall("", {}, "", start, end, f"A tool call must be a JSON object: {EXAMPLE}.")
    name, arguments = value.get("name"), value.get("arguments")
    if is_too_deep(value):
        return ToolCall("", {}, "", start, end, TOO_DEEP)
    if not is_unicode(json.dumps(value, ensure_ascii=False)):
        return ToolCall("", {}, "", start, end, NOT_UNICODE)
    if not isinstance(name, str):
        return ToolCall("", {}, "", start, end, f"The tool call names no tool: {EXAMPLE}.")
    if not isinstance(arguments, dict):
        return ToolCall(name, {}, "", start, end, f"The tool call's 'arguments' must be a JSON object: {EXAMPLE}.")
    return tools.read(name, arguments, start, end)


def _unclosed_end(text: str, position: int) -> int:
    """Where a call without a proper end ends: after the next closing tag, or before the next call, or with the text."""
    following = text.find(OPEN, position)
    limit = following if following >= 0 else len(text)
    close = text.find(CLOSE, position, limit)
    return close + len(CLOSE) if close >= 0 else limit


def _salvage(raw: str, tools: ToolSet) -> str:
    """The program inside JSON that can't be read, as far as it can be made out; to compare, never to run."""
    for tool in tools.values():
        if tool.code_argument is None:
            continue
        opening = re.search(rf'"{re.escape(tool.code_argument)}"\s*:\s*"', raw)
        if opening:
            program = re.sub(r'"[\s}\]]*$', "", raw[opening.end() :])
            return ESCAPE.sub(lambda match: ESCAPED.get(match[1], match[1]), program)
    return ""


def _skip_space(text: str, position: int) -> int:
    match = SPACE.match(text, position)
    return match.end() if match else position


def _explain(error: Exception, text: str, body: int) -> str:
    if isinstance(error, json.JSONDecodeError):
        if body + error.pos >= len(text):
            return f"The tool call breaks off before its JSON ends and before {CLOSE}."
        what = f"{error.msg} at character {error.pos + 1} of the call"
    else:
        what = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
    return f'The tool call is not valid JSON: {what}. Inside strings, write line breaks as \\n and quotes as \\".'

"""Calls as Qwen3-Coder writes them: `<function=NAME><parameter=ARG>…</parameter></function>` inside `<tool_call>`.

Values stand raw, so a program needs no escapes. A value ends at the `</parameter>` that another parameter or the
function's end follows, so a program may print the tag; but a line that opens the next call ends it too. The outer
`<tool_call>` may be missing, as it often is.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence

from cleaner_rl.tools.calls import ToolCall, ToolSet, ToolSpec
from cleaner_rl.tools.formats.base import (
    NOT_UNICODE,
    STRICT_JSON,
    TOO_DEEP,
    ParsedText,
    is_unicode,
    parse_with,
)
from cleaner_rl.tools.json_values import is_too_deep

# A name is bounded, so that a line of openings without an end isn't read to its end for each of them.
CALL = re.compile(r"<tool_call>\s*(?:<function=(?P<inner>[^>\n]{0,256})>)?|<function=(?P<bare>[^>\n]{0,256})>")
PARAMETER = re.compile(r"\s*<parameter=(?P<name>[^>\n]*)>")
NEXT_CALL = re.compile(r"^[ \t]*<(?:tool_call>|function=)", re.MULTILINE)
VALUE_CLOSE = "</parameter>"
VALUE_END = re.compile(VALUE_CLOSE + r"(?=\s*(?:<parameter=|</function>))")
FUNCTION_END = re.compile(r"\s*</function>")
OUTER_END = re.compile(r"\s*</tool_call>")
EXAMPLE = "<tool_call><function=NAME><parameter=ARGUMENT>value</parameter></function></tool_call>"


class XmlFormat:
    """Raw values between tags."""

    def parse(self, text: str, tools: ToolSet) -> ParsedText:
        """Every call in the text, runnable or not."""
        # Found once for the whole text: a search from each call could reach to the text's end each time.
        value_ends = [match.start() for match in VALUE_END.finditer(text)]
        next_calls = [match.start() for match in NEXT_CALL.finditer(text)]
        return parse_with(text, CALL, lambda opening: _read(text, opening, tools, value_ends, next_calls))


def _read(
    text: str, opening: re.Match[str], tools: ToolSet, value_ends: Sequence[int], next_calls: Sequence[int]
) -> ToolCall:
    start, position = opening.span()
    name = opening["inner"] if opening["inner"] is not None else opening["bare"]
    if name is None:
        problem = f"The tool call names no function: {EXAMPLE}."
        return ToolCall("", {}, "", start, _unclosed_end(text, position), problem)
    values: dict[str, str] = {}
    while parameter := PARAMETER.match(text, position):
        position = parameter.end()
        value_end = first_from(position, value_ends, len(text))
        if value_end == len(text) or first_from(position, next_calls, len(text)) < value_end:
            problem = f"The parameter '{parameter['name']}' has no closing {VALUE_CLOSE}: {EXAMPLE}."
            end = _unclosed_end(text, position)
            return ToolCall(name, {}, _strip_line_breaks(text[position:end]), start, end, problem)
        values[parameter["name"]] = _strip_line_breaks(text[position:value_end])
        position = value_end + len(VALUE_CLOSE)
    function_end = FUNCTION_END.match(text, position)
    if function_end is None:
        problem = f"The call of function '{name}' has no closing </function>: {EXAMPLE}."
        return ToolCall(name, {}, "\n".join(values.values()), start, _unclosed_end(text, position), problem)
    end = function_end.end()
    if opening["inner"] is not None:
        outer_end = OUTER_END.match(text, end)
        if outer_end is None:
            problem = f"The tool call has no closing </tool_call> right after </function>: {EXAMPLE}."
            return ToolCall(name, {}, "\n".join(values.values()), start, end, problem)
        end = outer_end.end()
    if not is_unicode(text[start:end]):
        return ToolCall(name, {}, "", start, end, NOT_UNICODE)
    arguments, problem_with_type = typed(values, tools.get(name))
    if problem_with_type:
        return ToolCall(name, values, "", start, end, problem_with_type)
    return tools.read(name, arguments, start, end)


def typed(values: Mapping[str, str], spec: ToolSpec | None) -> tuple[dict[str, object], str | None]:
    """Return the values by the types of the schema, text as it is and everything else as JSON, or what is wrong."""
    arguments: dict[str, object] = {}
    for name, value in values.items():
        kind = spec.type_of(name) if spec else None
        if kind in (None, "string"):
            arguments[name] = value
            continue
        try:
            arguments[name] = STRICT_JSON.decode(value)
        except (ValueError, RecursionError):
            return {}, f"The parameter '{name}' must be of type {kind}, written as JSON."
    return ({}, TOO_DEEP) if is_too_deep(arguments) else (arguments, None)


def first_from(position: int, places: Sequence[int], otherwise: int) -> int:
    """Return the first of these places from a position on."""
    index = bisect_left(places, position)
    return places[index] if index < len(places) else otherwise


def _unclosed_end(text: str, position: int) -> int:
    """Where a call without its end ends: before the next call, or with the text."""
    following = CALL.search(text, position)
    return following.start() if following else len(text)


def _strip_line_breaks(value: str) -> str:
    """The template sets each value on lines of its own; those two line breaks aren't part of it."""
    return value.removeprefix("\n").removesuffix("\n")

"""Calls as Qwen3-Coder writes them: `<function=NAME><parameter=ARG>…</parameter></function>` inside `<tool_call>`.

Values stand raw, so a program needs no escapes. A value ends at the `</parameter>` that another parameter or the
function's end follows, so a program may print the tag; but a line that opens the next call ends it too. The outer
`<tool_call>` may be missing, as it often is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from cleaner_rl.tools.calls import ToolCall, ToolSet, ToolSpec
from cleaner_rl.tools.formats.base import NOT_UNICODE, STRICT_JSON, ParsedText, is_unicode, parse_with

CALL = re.compile(r"<tool_call>\s*(?:<function=(?P<inner>[^>\n]*)>)?|<function=(?P<bare>[^>\n]*)>")
PARAMETER = re.compile(r"\s*<parameter=(?P<name>[^>\n]*)>")
NEXT_CALL = re.compile(r"^[ \t]*<(?:tool_call>|function=)", re.MULTILINE)
VALUE_END = re.compile(r"</parameter>(?=\s*(?:<parameter=|</function>))")
FUNCTION_END = re.compile(r"\s*</function>")
OUTER_END = re.compile(r"\s*</tool_call>")
EXAMPLE = "<tool_call><function=NAME><parameter=ARGUMENT>value</parameter></function></tool_call>"


class XmlFormat:
    """Raw values between tags."""

    def parse(self, text: str, tools: ToolSet) -> ParsedText:
        """Every call in the text, runnable or not."""
        return parse_with(text, CALL, lambda opening: _read(text, opening, tools))


def _read(text: str, opening: re.Match[str], tools: ToolSet) -> ToolCall:
    start, position = opening.span()
    name = opening["inner"] if opening["inner"] is not None else opening["bare"]
    if name is None:
        return _unreadable(text, start, position, "", f"The tool call names no function: {EXAMPLE}.")
    values: dict[str, str] = {}
    while parameter := PARAMETER.match(text, position):
        value_end = VALUE_END.search(text, parameter.end())
        if value_end is None or NEXT_CALL.search(text, parameter.end(), value_end.start()):
            problem = f"The parameter '{parameter['name']}' has no closing </parameter>: {EXAMPLE}."
            return _unreadable(text, start, parameter.end(), name, problem, _strip_line_breaks(text[parameter.end() :]))
        values[parameter["name"]] = _strip_line_breaks(text[parameter.end() : value_end.start()])
        position = value_end.end()
    function_end = FUNCTION_END.match(text, position)
    if function_end is None:
        problem = f"The call of function '{name}' has no closing </function>: {EXAMPLE}."
        return _unreadable(text, start, position, name, problem, "\n".join(values.values()))
    end = function_end.end()
    if opening["inner"] is not None:
        outer_end = OUTER_END.match(text, end)
        if outer_end is None:
            problem = f"The tool call has no closing </tool_call> right after </function>: {EXAMPLE}."
            return ToolCall(name, {}, "\n".join(values.values()), start, end, problem)
        end = outer_end.end()
    if not is_unicode(text[start:end]):
        return ToolCall(name, {}, "", start, end, NOT_UNICODE)
    arguments, problem_with_type = _typed(values, tools.get(name))
    if problem_with_type:
        return ToolCall(name, values, "", start, end, problem_with_type)
    return tools.read(name, arguments, start, end)


def _typed(values: Mapping[str, str], spec: ToolSpec | None) -> tuple[dict[str, object], str | None]:
    """Values by the schema's types: text stays as it stands, everything else is JSON."""
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
    return arguments, None


def _unreadable(text: str, start: int, position: int, name: str, problem: str, code: str = "") -> ToolCall:
    """A call without its end: it reaches to the next call or to the end of the text."""
    following = CALL.search(text, position)
    end = following.start() if following else len(text)
    return ToolCall(name, {}, code[: end - position], start, end, problem)


def _strip_line_breaks(value: str) -> str:
    """The template sets each value on lines of its own; those two line breaks aren't part of it."""
    return value.removeprefix("\n").removesuffix("\n")

"""Calls as GLM-4.5 to GLM-5 write them: a name, then keys and values, each between tags, all in `<tool_call>`.

A value ends at the last closing tag that an argument or the end of the call follows, so a program may print the tag.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from cleaner_rl.tools.calls import ToolCall, ToolSet
from cleaner_rl.tools.formats.base import NOT_UNICODE, ParsedText, is_unicode, parse_with
from cleaner_rl.tools.formats.xml import first_from, typed

OPENING = re.compile(r"<tool_call>(?P<name>[^<\n]{0,256})")
KEY = re.compile(r"\s*<arg_key>(?P<key>[^<\n]{0,256})</arg_key>\s*<arg_value>")
VALUE_CLOSE = "</arg_value>"
NEXT_CALL = re.compile(r"^[ \t]*<tool_call>", re.MULTILINE)
VALUE_END = re.compile(VALUE_CLOSE + r"(?=\s*(?:<arg_key>|</tool_call>))")
END = re.compile(r"\s*</tool_call>")
EXAMPLE = "<tool_call>NAME<arg_key>ARGUMENT</arg_key><arg_value>value</arg_value></tool_call>"


class GlmFormat:
    """Raw values between tags, each behind its key."""

    def parse(self, text: str, tools: ToolSet) -> ParsedText:
        """Every call in the text, runnable or not."""
        # Found once for the whole text: a search from each call could reach to the text's end each time.
        value_ends = [match.start() for match in VALUE_END.finditer(text)]
        next_calls = [match.start() for match in NEXT_CALL.finditer(text)]
        return parse_with(text, OPENING, lambda opening: _read(text, opening, tools, value_ends, next_calls))


def _read(
    text: str, opening: re.Match[str], tools: ToolSet, value_ends: Sequence[int], next_calls: Sequence[int]
) -> ToolCall:
    start, position, name = opening.start(), opening.end(), opening["name"].strip()
    limit = first_from(position, next_calls, len(text))
    values: dict[str, str] = {}
    while key := KEY.match(text, position):
        position = key.end()
        value_end = first_from(position, value_ends, len(text))
        if value_end >= limit:
            problem = f"The argument '{key['key']}' has no closing {VALUE_CLOSE}: {EXAMPLE}."
            return ToolCall(name, {}, text[position:limit], start, limit, problem)
        values[key["key"]] = text[position:value_end]
        position = value_end + len(VALUE_CLOSE)
    end = END.match(text, position)
    if end is None:
        problem = f"The call of '{name}' has no closing </tool_call>: {EXAMPLE}."
        return ToolCall(name, {}, "\n".join(values.values()), start, limit, problem)
    if not is_unicode(text[start : end.end()]):
        return ToolCall(name, {}, "", start, end.end(), NOT_UNICODE)
    arguments, problem_with_type = typed(values, tools.get(name))
    if problem_with_type:
        return ToolCall(name, values, "", start, end.end(), problem_with_type)
    return tools.read(name, arguments, start, end.end())

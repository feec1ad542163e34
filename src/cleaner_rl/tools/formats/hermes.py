"""Calls as Hermes and Qwen write them: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`.

The JSON value is read first and the closing tag looked for behind it, so a program may print the tag. JSON is taken
strictly (no raw line breaks in strings, no NaN), as the servers take it that such models are deployed on.
"""

from __future__ import annotations

import json
import re

from cleaner_rl.tools.calls import ToolCall, ToolSet
from cleaner_rl.tools.formats.base import NOT_UNICODE, ParsedText, is_unicode, parsed

OPEN, CLOSE = "<tool_call>", "</tool_call>"
EXAMPLE = OPEN + '{"name": "…", "arguments": {…}}' + CLOSE
ESCAPE = re.compile(r'\\(["\\/nrt])')
ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}
SPACE = re.compile(r"\s*")


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


_decoder = json.JSONDecoder(parse_constant=_no_constant)


class HermesFormat:
    """JSON calls between tags."""

    def parse(self, text: str, tools: ToolSet) -> ParsedText:
        """Every call in the text, runnable or not."""
        calls = []
        start = text.find(OPEN)
        while start >= 0:
            call = _read(text, start, tools)
            calls.append(call)
            start = text.find(OPEN, call.end)
        return parsed(text, calls)


def _read(text: str, start: int, tools: ToolSet) -> ToolCall:
    body = _skip_space(text, start + len(OPEN))
    try:
        value, after = _decoder.raw_decode(text, body)
    except (ValueError, RecursionError) as error:
        return _unreadable(text, start, body, tools, _explain(error, text, body))
    close = _skip_space(text, after)
    if not text.startswith(CLOSE, close):
        return _unreadable(text, start, body, tools, f"The tool call has no closing {CLOSE} right after its JSON.")
    end = close + len(CLOSE)
    if not isinstance(value, dict):
        return _malformed(text, body, start, end, tools, f"A tool call must be a JSON object: {EXAMPLE}.")
    name, arguments = value.get("name"), value.get("arguments")
    if not isinstance(name, str):
        return _malformed(text, body, start, end, tools, f"The tool call names no tool: {EXAMPLE}.")
    if not isinstance(arguments, dict):
        return _malformed(
            text, body, start, end, tools, f"The tool call's 'arguments' must be a JSON object: {EXAMPLE}."
        )
    if not is_unicode(json.dumps(value, ensure_ascii=False)):
        return ToolCall(name.encode(errors="replace").decode(), {}, "", start, end, NOT_UNICODE)
    return tools.read(name, arguments, start, end)


def _unreadable(text: str, start: int, body: int, tools: ToolSet, problem: str) -> ToolCall:
    """A call whose JSON or end can't be found: it reaches to its closing tag, the next call, or the end of the text."""
    close, following = text.find(CLOSE, body), text.find(OPEN, body)
    end = len(text)
    if close >= 0:
        end = close + len(CLOSE)
    if 0 <= following < end:
        end = following
    return _malformed(text, body, start, end, tools, problem)


def _malformed(text: str, body: int, start: int, end: int, tools: ToolSet, problem: str) -> ToolCall:
    raw = text[body:end].removesuffix(CLOSE)
    return ToolCall("", {}, _salvage(raw, tools), start, end, problem)


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
        if error.pos >= len(text):
            return f"The tool call breaks off before its JSON ends and before {CLOSE}."
        what = f"{error.msg} at character {error.pos - body + 1} of the call"
    else:
        what = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
    return f'The tool call is not valid JSON: {what}. Inside strings, write line breaks as \\n and quotes as \\".'

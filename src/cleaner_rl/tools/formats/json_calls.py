"""Calls as JSON between two marks, as Hermes and Qwen, Llama 3, DeepSeek-V3 and gpt-oss write them.

The JSON value is read first and the closing mark looked for behind it, so a program may print the mark. JSON is taken
strictly (no raw line breaks in strings, no NaN), as the servers take it that such models are deployed on.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace

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

ESCAPE = re.compile(r'\\(["\\/nrt])')
ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}
SPACE = re.compile(r"\s*")
FIRST_PIECE = 4_096
LONGEST_LEXEME = 16
"""Characters of an escape or a word of JSON, with some to spare: closer to the end a piece may just be cut off."""


@dataclass(frozen=True, slots=True)
class JsonFormat:
    """JSON calls, one behind each opening."""

    opening: re.Pattern[str]
    """What a call begins with. Where it holds the tool's name, that is the group `name`."""
    close: str
    """What ends a call; empty where the turn ends with it."""
    example: str
    """A call, for messages."""
    arguments: str | None = None
    """The key of the arguments in the JSON; None: the JSON is the arguments."""
    before_close: re.Pattern[str] = SPACE
    """What may be between the JSON and the end."""

    def parse(self, text: str, tools: ToolSet) -> ParsedText:
        """Every call in the text, runnable or not."""
        return parse_with(text, self.opening, lambda opening: self._read(text, opening, tools))

    def _read(self, text: str, opening: re.Match[str], tools: ToolSet) -> ToolCall:
        start, body = opening.start(), _skip(SPACE, text, opening.end())
        name = None if self.arguments else opening["name"]
        try:
            value, after = _decode(text, body)
        except (ValueError, RecursionError) as error:
            end = self._unclosed_end(text, body)
            code = _salvage(text[body:end].removesuffix(self.close), tools)
            return ToolCall(name or "", {}, code, start, end, self._explain(error, text, body))
        close = _skip(self.before_close, text, after) if self.close else after
        closed = text.startswith(self.close, close)
        end = close + len(self.close) if closed else self._unclosed_end(text, after)
        call = self._of_value(value, name, tools, start, end)
        if closed:
            return call
        return replace(call, problem=f"The tool call has no closing {self.close} right after its JSON.")

    def _of_value(self, value: object, name: object, tools: ToolSet, start: int, end: int) -> ToolCall:
        if not isinstance(value, dict):
            return ToolCall("", {}, "", start, end, f"A tool call must be a JSON object: {self.example}.")
        arguments: object = value
        if self.arguments:
            name, arguments = value.get("name"), value.get(self.arguments)
        if is_too_deep(value):
            return ToolCall("", {}, "", start, end, TOO_DEEP)
        if not is_unicode(json.dumps(value, ensure_ascii=False)):
            return ToolCall("", {}, "", start, end, NOT_UNICODE)
        if not isinstance(name, str) or not name:
            return ToolCall("", {}, "", start, end, f"The tool call names no tool: {self.example}.")
        if not isinstance(arguments, dict):
            problem = f"The tool call's '{self.arguments}' must be a JSON object: {self.example}."
            return ToolCall(name, {}, "", start, end, problem)
        return tools.read(name, arguments, start, end)

    def _unclosed_end(self, text: str, position: int) -> int:
        """Where a call without a proper end ends: after the next closing, or before the next call, or with the text."""
        # An opening may be nothing but what it looks ahead at, so this call's own is passed over.
        following = self.opening.search(text, position + (not self.close))
        limit = following.start() if following else len(text)
        close = text.find(self.close, position, limit) if self.close else -1
        return close + len(self.close) if close >= 0 else limit

    def _explain(self, error: Exception, text: str, body: int) -> str:
        if isinstance(error, json.JSONDecodeError):
            if body + error.pos >= len(text):
                behind = f" and before {self.close}" if self.close else ""
                return f"The tool call breaks off before its JSON ends{behind}."
            what = f"{error.msg} at character {error.pos + 1} of the call"
        else:
            what = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        return f'The tool call is not valid JSON: {what}. Inside strings, write line breaks as \\n and quotes as \\".'


def hermes() -> JsonFormat:
    """Return the format of Hermes, Qwen2.5 and Qwen3."""
    example = '<tool_call>{"name": "…", "arguments": {…}}</tool_call>'
    return JsonFormat(re.compile("<tool_call>"), "</tool_call>", example, "arguments")


def llama() -> JsonFormat:
    """Return the format of Llama 3.1 to 3.3: the turn is the call."""
    opening = re.compile(r'^(?:<\|python_tag\|>)?(?=\{\s{0,8}"name"\s{0,8}:)', re.MULTILINE)
    return JsonFormat(opening, "", '{"name": "…", "parameters": {…}}', "parameters")


def deepseek() -> JsonFormat:
    """Return the format of DeepSeek-V3, which writes a kind before the name and a fence, and of V3.1, which doesn't."""
    opening = re.compile(
        r"(?:<｜tool▁calls▁begin｜>\s{0,8})?<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>)?"
        r"(?P<name>[^<{\n]{0,256})(?:\n```json|<｜tool▁sep｜>)?"
    )
    example = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\n```json\n{…}\n```<｜tool▁call▁end｜>"
    return JsonFormat(opening, "<｜tool▁call▁end｜>", example, before_close=re.compile(r"\s*(?:```)?\s*"))


def harmony() -> JsonFormat:
    """Return the format of gpt-oss. A call begins behind `<|start|>assistant`, so that every turn begins alike."""
    opening = re.compile(
        r"(?:<\|channel\|>(?:commentary|analysis))?[ ]{0,2}to=(?:functions\.)?(?P<name>[^\s<]{0,256})"
        r"(?:<\|channel\|>(?:commentary|analysis))?[ ]{0,2}(?:<\|constrain\|>)?\w{0,16}<\|message\|>"
    )
    return JsonFormat(opening, "", "<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}")


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


def _skip(pattern: re.Pattern[str], text: str, position: int) -> int:
    match = pattern.match(text, position)
    return match.end() if match else position

"""What every call format shares: the protocol, the parsed text, and the rule for calls that are only thought about."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import NoReturn, Protocol

from cleaner_rl.tools.calls import ToolCall, ToolSet
from cleaner_rl.tools.json_values import DEEPEST

THINKING_END = "</think>"
NOT_UNICODE = "The call holds characters that are not valid Unicode (a lone surrogate)."
TOO_DEEP = f"The call is nested too deeply: write at most {DEEPEST} lists or objects in each other."


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    return number if isfinite(number) else _no_number(digits)


STRICT_JSON = json.JSONDecoder(parse_constant=_no_number, parse_float=_finite)
"""JSON as the standard has it: what one program reads, every other one can, and a store can hold."""


@dataclass(frozen=True, slots=True)
class ParsedText:
    """The calls in one turn's text, in order."""

    calls: tuple[ToolCall, ...]
    length: int
    """Characters of the text."""

    @property
    def action_start(self) -> int:
        """Return where reasoning ends and the action begins: the first call, or else the end of the text."""
        return self.calls[0].start if self.calls else self.length


class CallFormat(Protocol):
    """Finds the calls in a model's text. Implementations hold no state and never raise on what a model may write."""

    def parse(self, text: str, tools: ToolSet) -> ParsedText:
        """Return every call in the text, runnable or not."""
        ...


class NoCalls:
    """The format of a model without tools: whatever it writes is talk."""

    def parse(self, text: str, tools: ToolSet) -> ParsedText:  # noqa: ARG002
        """No call."""
        return ParsedText((), len(text))


def parse_with(text: str, opening: re.Pattern[str], read: Callable[[re.Match[str]], ToolCall]) -> ParsedText:
    """Read a call wherever one opens, go on behind it, and leave out what is only thought about.

    A call inside a thinking block is talk. An end of such a block that a program holds is none.
    """
    calls = []
    opened = opening.search(text)
    while opened:
        calls.append(read(opened))
        opened = opening.search(text, calls[-1].end)
    thinking_end = text.find(THINKING_END)
    for call in calls:
        if call.problem is None and call.start < thinking_end < call.end:
            thinking_end = text.find(THINKING_END, call.end)
    return ParsedText(tuple(call for call in calls if call.start > thinking_end), len(text))


def is_unicode(text: str) -> bool:
    """Whether the text can be written as UTF-8; JSON can spell lone surrogates, which no file or program can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True

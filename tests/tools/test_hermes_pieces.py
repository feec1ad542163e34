"""Long calls, and thousands of broken ones: a decoder gets no more text than it needs, and no less."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner_rl.tools import ToolSet, call_format, python_tool
from cleaner_rl.tools.formats import base, json_calls

TOOLS = ToolSet(python_tool())


@given(st.integers(-40, 8), st.text(st.sampled_from('a"\\\n\té\U0001f600'), max_size=30), st.booleans())
def test_a_call_is_read_wherever_a_piece_ends(offset: int, odd: str, ascii_only: bool) -> None:
    code = "x" * (json_calls.FIRST_PIECE - 50 + offset) + odd + "y"
    call = json.dumps({"name": "python", "arguments": {"code": code}}, ensure_ascii=ascii_only)
    (read,) = call_format("hermes").parse(f"I run it.<tool_call>{call}</tool_call>", TOOLS).calls
    assert (read.code, read.problem) == (code, None)


class Counting:
    """Counts the characters that are given to a decoder."""

    def __init__(self, decoder: json.JSONDecoder) -> None:
        self._decoder = decoder
        self.characters = 0

    def raw_decode(self, text: str) -> tuple[object, int]:
        self.characters += len(text)
        return self._decoder.raw_decode(text)


@pytest.mark.parametrize("opening", ["<tool_call>", "<tool_call>{", '<tool_call>{"name": "x'])
def test_finding_a_text_of_openings_takes_time_in_proportion(opening: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counting = Counting(base.STRICT_JSON)
    monkeypatch.setattr(json_calls, "STRICT_JSON", counting)
    assert len(call_format("hermes").parse(opening * 2_000, TOOLS).calls) == 2_000
    assert counting.characters <= 2_000 * 2 * json_calls.FIRST_PIECE

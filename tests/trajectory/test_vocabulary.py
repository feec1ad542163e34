"""Tokens to text and characters to token boundaries, for every kind of vocabulary."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner_rl.tools import ParsedText, ToolSet, call_format, python_tool
from cleaner_rl.trajectory import Ids, TokenSpan, Turn, Vocabulary, read_text, read_tokens, token_span
from tests.generators import (
    BYTES,
    CORPUS,
    MARKERS,
    STRADDLING,
    TOKENIZERS,
    VOCABULARIES,
    bpe_with_special_tokens,
    byte_level_bpe,
    hermes_call,
    texts,
    written_turns,
)
from tests.profile import examples

HERMES = call_format("hermes")
TOOLS = ToolSet(python_tool())


def as_ids(numbers: list[int]) -> Ids:
    return token_span("", numbers).ids


def sampled(numbers: list[int]) -> TokenSpan:
    return token_span("", numbers, [-float(index) for index in range(len(numbers))], version=1)


def split(draw: st.DrawFn, vocabulary: Vocabulary, text: str) -> list[int]:
    """Any way to write the text with the vocabulary's tokens."""
    data, numbers = text.encode(), []
    while data:
        fitting = [number for number, token in enumerate(vocabulary._tokens) if token and data.startswith(token)]
        numbers.append(draw(st.sampled_from(fitting)))
        data = data[len(vocabulary._tokens[numbers[-1]]) :]
    return numbers


@st.composite
def written_with(draw: st.DrawFn) -> tuple[Vocabulary, list[int], str]:
    """A vocabulary, the tokens of a turn, and its text: as a tokenizer splits it, or in any other way."""
    text = "".join(draw(written_turns()))
    if draw(st.booleans()):
        tokenizer, vocabulary = TOKENIZERS[draw(st.sampled_from(sorted(TOKENIZERS)))]()
        return vocabulary, tokenizer.encode(text).ids, text
    return STRADDLING, split(draw, STRADDLING, text), text


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=examples(30), deadline=None)
@given(text=texts(20) | st.sampled_from(CORPUS))
def test_decoding_is_the_tokenizers_own(name: str, text: str) -> None:
    tokenizer, vocabulary = TOKENIZERS[name]()
    numbers = tokenizer.encode(text).ids
    assert vocabulary.decode(as_ids(numbers)).text == text == tokenizer.decode(numbers, skip_special_tokens=False)


def test_markers_are_one_token_or_several() -> None:
    assert [len(byte_level_bpe()[0].encode(marker).ids) > 1 for marker in MARKERS] == [True] * 3
    assert [len(bpe_with_special_tokens()[0].encode(marker).ids) for marker in MARKERS] == [1] * 3


@pytest.mark.parametrize("name", VOCABULARIES)
@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_any_tokens_decode_as_their_bytes_do(name: str, data: st.DataObject) -> None:
    vocabulary = VOCABULARIES[name]()
    numbers = data.draw(st.lists(st.integers(0, len(vocabulary._tokens) - 1), max_size=12))
    pieces = [vocabulary._tokens[number] for number in numbers]
    decoded = vocabulary.decode(as_ids(numbers))
    assert decoded.text == b"".join(pieces).decode(errors="replace")
    assert len(decoded.offsets) == len(numbers) + 1
    assert decoded.offsets[0] == 0
    assert decoded.offsets[-1] == len(decoded.text)
    for boundary, characters in enumerate(decoded.offsets.tolist()):
        if characters >= 0:
            before, after = b"".join(pieces[:boundary]), b"".join(pieces[boundary:])
            assert before.decode(errors="replace") == decoded.text[:characters]
            assert after.decode(errors="replace") == decoded.text[characters:]
    for character in range(len(decoded.text) + 1):
        boundary = decoded.boundary(character)
        assert 0 <= decoded.offsets[boundary] <= character
        assert not ((decoded.offsets > decoded.offsets[boundary]) & (decoded.offsets <= character)).any()


def test_boundaries_of_characters_that_span_tokens_and_tokens_that_span_characters() -> None:
    vocabulary = Vocabulary([b"a\xf0\x9f", b"\x99\x82", "é!".encode(), b""])
    decoded = vocabulary.decode(as_ids([2, 0, 1, 3, 2]))
    assert decoded.text == "é!a🙂é!"
    assert decoded.offsets.tolist() == [0, 2, -1, 4, 4, 6]
    assert [decoded.boundary(character) for character in range(7)] == [0, 0, 1, 1, 4, 4, 5]


def test_a_character_that_breaks_off_ends_where_the_text_does() -> None:
    decoded = BYTES.decode(as_ids([ord("a"), 0xF0, 0x9F]))
    assert (decoded.text, decoded.offsets.tolist()) == ("a\ufffd", [0, 1, -1, 2])


def test_rows_of_a_model_behind_its_vocabulary_say_nothing() -> None:
    decoded = Vocabulary([b"a", b"b"]).decode(np.array([0, 2, 99, 1], np.int32))
    assert decoded.text == "ab"
    assert decoded.offsets.tolist() == [0, 1, 1, 1, 2]


def test_no_tokens_are_no_text() -> None:
    decoded = BYTES.decode(as_ids([]))
    assert (decoded.text, decoded.offsets.tolist(), decoded.boundary(0)) == ("", [0], 0)


@settings(max_examples=examples(150), deadline=None)
@given(written_with())
def test_s17_a_marker_of_several_tokens_is_never_cut(written: tuple[Vocabulary, list[int], str]) -> None:
    vocabulary, numbers, text = written
    span = sampled(numbers)
    turn = read_tokens(span, vocabulary, HERMES, TOOLS)
    in_text = read_text(text, HERMES, TOOLS)
    check_parts(turn, span, text)
    if in_text.action is None:
        assert turn.action is None
        return
    assert turn.action is not None
    # All that comes before the marker may go to the action, where a token reaches across; none of the marker may stay.
    assert in_text.reasoning.text.startswith(turn.reasoning.text)
    assert turn.action.text.endswith(in_text.action.text)
    moved = len(turn.action.text) - len(in_text.action.text)
    assert [(call.start - moved, call.end - moved) for call in turn.calls] == [
        (call.start, call.end) for call in in_text.calls
    ]
    # And no clean boundary lies between the two.
    clean = set(vocabulary.decode(span.ids).offsets.tolist())
    assert not clean & set(range(len(turn.reasoning.text) + 1, len(in_text.reasoning.text) + 1))


def check_parts(turn: Turn[TokenSpan], span: TokenSpan, text: str) -> None:
    parts = list(turn.spans())
    assert "".join(part.text for part in parts) == text
    assert np.concatenate([part.ids for part in parts]).tobytes() == span.ids.tobytes()
    assert span.sampled is not None
    logprobs = [part.sampled.logprobs for part in parts if part.sampled is not None]
    assert np.concatenate(logprobs).tobytes() == span.sampled.logprobs.tobytes()
    assert all(part.sampled is not None and part.sampled.version == 1 for part in parts)


def test_s17_the_marker_in_pieces_and_across_other_tokens() -> None:
    find = STRADDLING._tokens.index
    body = list(b'\n{"name": "python", "arguments": {"code": "1"}}\n</tool_call>')
    for before, reasoning in [
        ([find(b"x"), find(b"<"), find(b"tool_"), find(b"call>")], "x"),
        ([find(b"x<"), find(b"tool_"), find(b"call>")], ""),
        ([find(b"."), find(b" <tool"), *b"_", find(b"call>")], "."),
        ([*"é".encode(), find("é<tool".encode()), *b"_", find(b"call>")], "é"),
        ([find(b"\xe2\x82"), find(b"\xac<"), find(b"tool_"), find(b"call>")], ""),
    ]:
        turn = read_tokens(sampled([*before, *body]), STRADDLING, HERMES, TOOLS)
        assert turn.reasoning.text == reasoning
        assert turn.action is not None
        assert turn.calls[0].code == "1"
        assert turn.action.text[turn.calls[0].start :].startswith("<tool_call>")


def test_the_end_of_turn_token_belongs_to_the_turn_and_to_no_call() -> None:
    tokenizer, vocabulary = bpe_with_special_tokens()
    [stop] = tokenizer.encode("<|im_end|>").ids
    for text in ("No call.", "One: " + hermes_call("print(1)")):
        span = sampled([*tokenizer.encode(text).ids, stop, stop])
        turn = read_tokens(span, vocabulary, HERMES, TOOLS, stop_ids={stop})
        check_parts(turn, span, text + "<|im_end|>" * 2)
        assert all(call.problem is None for call in turn.calls)
        assert len(turn.calls) == ("One" in text)


@given(st.text(max_size=5), st.integers(0, 3), st.booleans())
def test_no_call_sees_the_end_of_turn_token_behind_half_a_character(before: str, kept: int, calls: bool) -> None:
    vocabulary = Vocabulary([*(bytes([byte]) for byte in range(256)), b"<|im_end|>"])
    written = [*before.encode(), *(b"<tool_call>" if calls else b""), *"🙂".encode()[:kept]]
    seen: list[str] = []

    class Watching:
        def parse(self, text: str, tools: ToolSet) -> ParsedText:
            seen.append(text)
            return HERMES.parse(text, tools)

    turn = read_tokens(sampled([*written, 256]), vocabulary, Watching(), TOOLS, stop_ids={256})
    assert seen == [bytes(written).decode(errors="replace")]
    assert "".join(span.text for span in turn.spans()) == seen[0] + "<|im_end|>"


def test_tokens_without_logprobs_stay_without() -> None:
    turn = read_tokens(token_span("", list(hermes_call("1").encode())), BYTES, HERMES, TOOLS)
    assert turn.action is not None
    assert turn.action.sampled is None


def test_added_tokens_stand_for_their_own_text() -> None:
    vocabulary = Vocabulary.from_byte_level({"Ġa": 0, "Ċ": 1, "<é>": 3}, {"<é>": 3, "<b>": 4})
    assert vocabulary.decode(as_ids([0, 1, 3, 4])).text == " a\n<é><b>"
    assert vocabulary.decode(as_ids([2])).text == "", "a hole in the ids stands for nothing"


@pytest.mark.parametrize("broken", [False, True])
def test_s16_the_boundary_is_found_in_linear_time(broken: bool) -> None:
    tail = list(hermes_call("print(1)").encode())
    filler = [*"Thinking 🙂 ".encode(), *([0xFF] if broken else [])]

    def cpu_seconds(tokens: int) -> float:
        span = token_span("", (filler * (tokens // len(filler)) + tail))
        times = []
        for _ in range(5):
            start = time.process_time()
            turn = read_tokens(span, BYTES, HERMES, TOOLS)
            times.append(time.process_time() - start)
            assert len(turn.calls) == 1
        return min(times)

    cpu_seconds(1_000)
    assert cpu_seconds(40_000) < 24 * cpu_seconds(5_000) + 0.05, "8 times the tokens; 64 times if it were quadratic"

"""Strategies for everything that a trajectory can hold, shared by the tests of all rooms.

Sizes are small, because a fault that needs a long trajectory is rare and a slow test is run seldom. What is strange
comes often: empty spans, astral characters, NUL, U+FFFD, unknown log-probs and versions, edits under edits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import TypeVar

import numpy as np
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from cleaner_rl.tools import ExceptionInfo, Status, ToolCall, ToolResult
from cleaner_rl.trajectory import (
    AnyTrajectory,
    Edit,
    Floats,
    Ids,
    Key,
    Phase,
    RepairKind,
    RepairMode,
    RolloutInfo,
    Scores,
    StopReason,
    TextSpan,
    TokenSpan,
    Trajectory,
    Turn,
    Vocabulary,
)

S = TypeVar("S", TextSpan, TokenSpan)
Array = TypeVar("Array", Ids, Floats)
MARKERS = ("<tool_call>", "</tool_call>", "<|im_end|>")
CORPUS = [
    "Let me compute the sum, then check it. I think the answer is 42.\n",
    'print(sum(i * i for i in range(10)))\nimport math\nprint(f"{math.pi:.3f}")\n',
    '{"name": "python", "arguments": {"code": "x = 1\\nprint(x + y)"}}',
    "NameError: name 'y' is not defined\n",
    "naïve café, Größe, 東京, 你好, 🙂 and 🤖\n",
]

# Vocabularies


@cache
def byte_level_bpe() -> tuple[Tokenizer, Vocabulary]:
    """A byte-level BPE in which `<tool_call>` is several tokens."""
    return _trained([])


@cache
def bpe_with_special_tokens() -> tuple[Tokenizer, Vocabulary]:
    """The same, with each marker one special token."""
    return _trained(list(MARKERS))


@cache
def bpe_of_marker_pieces() -> tuple[Tokenizer, Vocabulary]:
    """One whose tokens join anything: words, spaces, and parts of markers with what stands around them."""
    return _trained([], [".\n<tool", " <tool", "_call>\n{", "</tool", "call><|im"] * 50, split_words=False)


BYTES = Vocabulary([bytes([byte]) for byte in range(256)])
"""Every character outside of ASCII is several tokens."""

STRADDLING = Vocabulary(
    [bytes([byte]) for byte in range(256)]
    + [
        b" <tool",
        b".\n<",
        b"tool_",
        b"call>",
        b"<tool_call>",
        b"_call>\n{",
        b"x<",
        b"</tool_call><|",
        b"\xf0\x9f",
        b"\x99",
    ]
    + [b"\xe2\x82", "é<tool".encode(), b"\xac<", "🙂<".encode(), b"", b"<|im_end|>", b'{"name": "python", ']
)
"""Made by hand: tokens that reach across a marker's borders, halves of characters, and a token of no bytes."""


def _trained(special: list[str], more: Sequence[str] = (), split_words: bool = True) -> tuple[Tokenizer, Vocabulary]:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split_words)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=512,
        special_tokens=special,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS * 3 + list(more), trainer)
    added = {token.content: token_id for token_id, token in tokenizer.get_added_tokens_decoder().items()}
    return tokenizer, Vocabulary.from_byte_level(tokenizer.get_vocab(), added)


VOCABULARIES: dict[str, Callable[[], Vocabulary]] = {
    "byte-level BPE": lambda: byte_level_bpe()[1],
    "special tokens": lambda: bpe_with_special_tokens()[1],
    "marker pieces": lambda: bpe_of_marker_pieces()[1],
    "bytes": lambda: BYTES,
    "straddling": lambda: STRADDLING,
}
TOKENIZERS: dict[str, Callable[[], tuple[Tokenizer, Vocabulary]]] = {
    "byte-level BPE": byte_level_bpe,
    "special tokens": bpe_with_special_tokens,
    "marker pieces": bpe_of_marker_pieces,
}

# Text, numbers, calls and results


STRANGE = (
    "",
    "\0",
    "\ufffd",
    "🙂",
    "é<tool_call>",
    "東 ",
    "a\r\nb",
    "\u2028",
    "Error: none",
    "\x7f'\"\\",
    "plain text",
)
CHARACTERS = st.characters(exclude_categories=["Cs"])


def texts(max_size: int = 8) -> st.SearchStrategy[str]:
    """Text, often with what breaks tools that handle text."""
    return st.sampled_from(STRANGE) | st.text(CHARACTERS, max_size=max_size)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | texts(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts(4), inner, max_size=2),
    max_leaves=4,
)
json_objects = st.dictionaries(texts(4), json_values, max_size=2)
small = st.integers(0, 2**40)

# The rarer fields come in a few fixed combinations: that is much faster than to draw each, and reaches as far.
RESULTS = (
    ToolResult(Status.OK),
    ToolResult(Status.OK, "", "warning\0", None, "", 2**40, 0.0, {"python": "3.11.7", "é": "🙂"}),
    ToolResult(
        Status.OK, "", "", ExceptionInfo("NameError", "name 'y' is not defined", 3, "Traceback…"), "", None, 1e-300
    ),
    ToolResult(Status.OK, "", "", ExceptionInfo(""), "What to do. 東", 0, 12.5),
)


def results(*statuses: Status) -> st.SearchStrategy[ToolResult]:
    """Results with one of these statuses, or with any."""
    return st.builds(
        lambda shape, status, output: replace(shape, status=status, output=output),
        st.sampled_from(RESULTS),
        st.sampled_from(statuses or tuple(Status)),
        texts(),
    )


def code_call(code: str, start: int, end: int) -> ToolCall:
    """A call of the Python tool that can be run."""
    return ToolCall("python", {"code": code}, code, start, end)


CALLS = (
    ToolCall("python", {}, "", 0, 0),
    ToolCall("search", {"é": [1, 2.5, None, True, {"": "🙂"}]}, "", 7, 2**40),
    ToolCall("", {"n": 2**70, "x": 1e-300, "\ud800": "\0"}, "", 1, 2),
)
calls = st.builds(lambda shape, code: replace(shape, code=code), st.sampled_from(CALLS), texts()) | st.builds(
    code_call, texts(), small, small
)
malformed_calls = st.builds(lambda code, problem: ToolCall("", {}, code, 0, 9, problem), texts(), texts())

FAILURES = tuple(status for status in Status if status not in (Status.OK, Status.FAULT))


@st.composite
def _calls_and_results(draw: st.DrawFn) -> tuple[tuple[ToolCall, ...], tuple[ToolResult, ...]]:
    kind = draw(st.sampled_from(["none", "ok", "failed", "malformed", "faulty", "several", "not run"]))
    if kind == "none":
        return (), ()
    if kind == "malformed":
        call = draw(malformed_calls)
        return (call,), (call.refusal or ToolResult(Status.MALFORMED),)
    if kind == "several":
        several = draw(st.lists(st.tuples(calls, results()), min_size=2, max_size=3))
        return tuple(call for call, _ in several), tuple(result for _, result in several)
    if kind == "not run":
        return (draw(calls),), ()
    statuses = {"ok": (Status.OK,), "failed": FAILURES, "faulty": (Status.FAULT,)}[kind]
    return (draw(calls),), (draw(results(*statuses)),)


# Spans

text_spans = st.builds(TextSpan, texts())
versions = st.none() | st.integers(0, 2**40)


# Whole arrays are drawn as bytes: one draw instead of one for each number, and every bit pattern can come.


def logprobs(size: int) -> st.SearchStrategy[Floats]:
    """Any float32 that is not positive, minus infinity too, but no NaN."""
    return st.binary(min_size=4 * size, max_size=4 * size).map(
        lambda data: frozen(-np.abs(np.nan_to_num(np.frombuffer(data, np.float32), posinf=np.inf, neginf=np.inf)))
    )


def ids(max_size: int = 4) -> st.SearchStrategy[Ids]:
    """Ids that an int32 can hold."""
    return st.integers(0, max_size).flatmap(
        lambda size: st.binary(min_size=4 * size, max_size=4 * size).map(
            lambda data: frozen(np.frombuffer(data, np.int32) & np.int32(2**31 - 1))
        )
    )


def frozen(array: Array) -> Array:
    """The same array, read-only."""
    array.setflags(write=False)
    return array


@st.composite
def token_spans(draw: st.DrawFn, sampled: bool | None = None, rescored: bool | None = None) -> TokenSpan:
    """Token spans; with and without log-probs, unless it is said which."""
    its_ids = draw(ids())

    def scores(wanted: bool | None) -> Scores | None:
        there = draw(st.booleans()) if wanted is None else wanted
        return Scores(draw(logprobs(len(its_ids))), draw(versions)) if there else None

    return TokenSpan(draw(texts()), its_ids, scores(sampled), scores(rescored))


# Turns, edits and trajectories


@st.composite
def turns(draw: st.DrawFn, spans: st.SearchStrategy[S], max_attempt: int = 3) -> Turn[S]:
    """Turns of every kind: without a call, ok, failed, malformed, faulty, with several calls, not run yet."""
    its_calls, its_results = draw(_calls_and_results())
    return Turn(
        draw(spans),
        draw(spans) if its_calls else None,
        draw(spans) if its_results else None,
        its_calls,
        its_results,
        draw(st.integers(0, max_attempt)),
    )


@st.composite
def edited_turns(draw: st.DrawFn, spans: st.SearchStrategy[S], depth: int = 2) -> Turn[S]:
    """Turns with an edit, live or in hindsight, whose original turns may be edited in turn."""
    inner = turns(spans) if depth <= 1 else turns(spans) | edited_turns(spans, depth - 1)
    kind = draw(st.sampled_from(RepairKind))
    edit = Edit(
        draw(st.sampled_from(RepairMode)),
        kind,
        tuple(draw(st.lists(inner, max_size=2))),
        draw(st.none() | st.floats(0, 1)),
        draw(st.sampled_from(["", "difflib", "indel"])),
        draw(texts(4)),
        tuple(draw(st.lists(texts(4), max_size=2))),
    )
    return replace(draw(turns(spans)), edit=edit)


keys = st.builds(
    Key,
    st.sampled_from(["", "run", "a/b=c", "größe 1", "2026", "run-evaluation"]),
    st.integers(0, 3),
    texts(4),
    st.integers(0, 100),
    st.sampled_from(Phase),
)
infos = st.builds(
    RolloutInfo,
    seconds=st.none() | st.floats(0, 100),
    stateful=st.none() | st.booleans(),
    messages=st.none() | st.lists(json_objects, max_size=2),
    fault=texts(4),
    answer=st.none() | texts(4),
    verdict=st.none() | json_objects,
    other=json_objects,
)


@st.composite
def trajectories(
    draw: st.DrawFn, spans: st.SearchStrategy[S], depth: int = 3, keys: st.SearchStrategy[Key] = keys
) -> Trajectory[S]:
    """Trajectories of up to three turns, edited or not."""
    each = turns(spans) | edited_turns(spans, depth) if depth else turns(spans)
    return Trajectory(
        draw(spans),
        tuple(draw(st.lists(each, max_size=3))),
        draw(keys),
        draw(st.none() | st.floats(allow_nan=False)),
        draw(st.none() | st.booleans()),
        draw(st.none() | st.sampled_from(StopReason)),
        draw(infos),
    )


text_trajectories: st.SearchStrategy[Trajectory[TextSpan]] = trajectories(text_spans)
token_trajectories: st.SearchStrategy[Trajectory[TokenSpan]] = trajectories(token_spans())
any_trajectories: st.SearchStrategy[AnyTrajectory] = text_trajectories | token_trajectories


# What a model writes


def hermes_call(code: str) -> str:
    """A call as the model writes it."""
    return (
        f"<tool_call>\n{json.dumps({'name': 'python', 'arguments': {'code': code}}, ensure_ascii=False)}\n</tool_call>"
    )


@st.composite
def written_turns(draw: st.DrawFn) -> tuple[str, str]:
    """Reasoning and action as text; the action begins with its marker and has one call or more, or is empty."""
    before = draw(st.sampled_from(["", " ", ".\n", "x", "é", "🙂", "<tool", "<", "\n\n", "tool_call"]))
    reasoning = draw(texts()).replace("<tool_call>", "") + before
    codes = draw(st.lists(texts().map(lambda text: text + "1"), max_size=2))
    return reasoning.replace("<tool_call>", ""), "\n".join(map(hermes_call, codes))

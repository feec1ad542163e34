"""What a model wrote, to a turn: parse the text, then cut the tokens where reasoning ends and the action begins."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from cleaner_rl.tools import CallFormat, ToolCall, ToolSet
from cleaner_rl.trajectory.spans import Scores, TextSpan, TokenSpan
from cleaner_rl.trajectory.turns import Turn
from cleaner_rl.trajectory.vocabulary import Vocabulary


def read_text(text: str, call_format: CallFormat, tools: ToolSet) -> Turn[TextSpan]:
    """Make a turn from text."""
    parsed = call_format.parse(text, tools)
    if not parsed.calls:
        return Turn(TextSpan(text))
    cut = parsed.action_start
    return Turn(TextSpan(text[:cut]), TextSpan(text[cut:]), calls=_within_action(parsed.calls, cut))


def read_tokens(
    sampled: TokenSpan, vocabulary: Vocabulary, call_format: CallFormat, tools: ToolSet, stop_ids: Collection[int] = ()
) -> Turn[TokenSpan]:
    """Make a turn from the tokens of one request; its text is decoded from the tokens.

    The model's own end-of-turn token belongs to the turn, but no call format needs to know how it looks.
    """
    decoded = vocabulary.decode(sampled.ids)
    written = len(sampled.ids)
    while written and int(sampled.ids[written - 1]) in stop_ids:
        written -= 1
    # Decoded by itself: a sample that breaks off inside a character has no boundary there to cut its text at.
    text = decoded.text if written == len(sampled.ids) else vocabulary.decode(sampled.ids[:written]).text
    parsed = call_format.parse(text, tools)
    if not parsed.calls:
        return Turn(replace(sampled, text=decoded.text))
    cut = decoded.boundary(parsed.action_start)
    characters = int(decoded.offsets[cut])
    return Turn(
        _part(sampled, slice(0, cut), decoded.text[:characters]),
        _part(sampled, slice(cut, None), decoded.text[characters:]),
        calls=_within_action(parsed.calls, characters),
    )


def _part(span: TokenSpan, part: slice, text: str) -> TokenSpan:
    scores = span.sampled and Scores(span.sampled.logprobs[part], span.sampled.version)
    return TokenSpan(text, span.ids[part], scores)


def _within_action(calls: tuple[ToolCall, ...], start: int) -> tuple[ToolCall, ...]:
    return tuple(replace(call, start=call.start - start, end=call.end - start) for call in calls)

"""Finds reasoning that mentions an error which a repair has taken out.

A replacement puts reasoning that was written after the failure, often "the error was …", into a history without one.
It is reported with the edit, and refused if the config says so. It is never rewritten, because only the model may write
what the model learns to say.

Limits: the words are a heuristic, for a report. It decides no success and no failure. English phrases only; what the
removed exceptions were called and said is found in any language.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from cleaner_rl.tools import ToolResult

PHRASES = re.compile(
    r"""
    \b(?:
        (?:the|this|that|an|my)\s+(?:\w+\s+)?(?:error|exception|traceback|bug|mistake|typo)
      | (?:previous|earlier|last|first|failed)\s+(?:attempt|try|call|program|code|version)
      | (?:error|exception|traceback)\s+(?:message\s+)?(?:was|is|says|said|shows|indicates|occurred)
      | (?:it|that|which|code|program|call)\s+(?:failed|crashed|timed\ out)
      | (?:try|trying)\s+again
    )\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
SHORTEST_MESSAGE = 6
"""A shorter message ('0', 'x') says nothing of where it is quoted."""


def stale_mentions(reasoning: str, failures: Sequence[ToolResult]) -> tuple[str, ...]:
    """Return the words in which reasoning mentions these failures, in order of appearance; empty if there are none."""
    found = [(match.start(), match[0]) for match in PHRASES.finditer(reasoning)]
    found += [(place, name) for name in _names(failures) if (place := reasoning.find(name)) >= 0]
    return tuple(dict.fromkeys(words for _, words in sorted(found)))


def later_mentions(reasonings: Sequence[str], failures: Sequence[Sequence[ToolResult]]) -> Iterator[tuple[str, ...]]:
    """Yield for the failures of each turn the names and messages that the reasoning of later turns mentions, in order.

    A name is looked for once in all of the reasoning, however many turns failed with it.
    """
    text = "".join(reasonings)
    ends = list(accumulate(map(len, reasonings)))
    places: dict[str, int] = {}
    for end, failed in zip(ends, failures, strict=True):
        names = _names(failed)
        for name in names:
            if places.get(name, -1) < end:
                places[name] = _next_place(name, text, ends, end)
        said = [name for name in names if places[name] < len(text)]
        yield tuple(sorted(said, key=lambda name: bisect_right(ends, places[name])))


def _names(failures: Sequence[ToolResult]) -> list[str]:
    """Return the types and messages of these failures' exceptions."""
    names: dict[str, None] = {}
    for exception in (failure.exception for failure in failures):
        if exception is not None:
            names[exception.type] = None
            if len(exception.message) >= SHORTEST_MESSAGE:
                names[exception.message] = None
    return list(filter(None, names))


def _next_place(name: str, text: str, ends: Sequence[int], start: int) -> int:
    """Return where a name stands next, within one part; the length of the text if it doesn't."""
    while (place := text.find(name, start)) >= 0:
        if place + len(name) <= ends[bisect_right(ends, place)]:
            return place
        start = place + 1
    return len(text)

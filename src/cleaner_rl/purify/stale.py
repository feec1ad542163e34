"""Reasoning that talks of an error which no longer stands before it.

A replacement adopts reasoning that was written after the failure, often "the error was …", into a history where there
was none. It is reported with the edit, and refused if the policy says so; it is never rewritten, because nobody but the
model may write what the model learns to say.

Limits: the words are a heuristic, for a report. It decides no success and no failure. English phrases only; what the
removed exceptions were called and said is found in any language.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

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
    """The words in which reasoning refers to these failures, in order of appearance; empty if it doesn't seem to."""
    found = [(match.start(), match[0]) for match in PHRASES.finditer(reasoning)]
    found += named_errors(reasoning, failures)
    return tuple(dict.fromkeys(words for _, words in sorted(found)))


def named_errors(reasoning: str, failures: Sequence[ToolResult]) -> list[tuple[int, str]]:
    """Where reasoning names an exception of these failures, or quotes its message."""
    found = []
    for failure in failures:
        if failure.exception is None:
            continue
        names = [failure.exception.type]
        if len(failure.exception.message) >= SHORTEST_MESSAGE:
            names.append(failure.exception.message)
        found += [(place, name) for name in names if (place := reasoning.find(name)) >= 0]
    return found

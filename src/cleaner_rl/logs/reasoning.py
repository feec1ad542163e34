"""Whether the reasoning around a repair is true of the program that is then there.

A graft keeps the reasoning of the failed turn; it may not name what the program no longer has. And the turn behind a
repair may not apologise for what is no longer there.

Limits: an apology is known in English. The reasoning of a replacement is not looked at (`--refuse-stale` does)."""

from __future__ import annotations

import re

APOLOGY = re.compile(
    r"\bapologi[sz]e for (?:the|my|that|this) (?:previous |earlier )?(?:mistake|error|oversight|bug|typo)"
    r"|\b(?:in|with) my (?:previous|last|earlier) (?:response|attempt|code|command|call|edit|query|program)"
    r"|\b(?:first|initial|earlier|previous) (?:attempt|try|edit|call|command|query|patch|statement)\b"
    r"|\bmy (?:own )?(?:typo|mistake|slip|misspelling)s?\b"
    r"|\bI (?:first|initially|mistakenly|wrongly) (?:tried|used|wrote)",
    re.IGNORECASE,
)
"""Words behind a repair about what it took out."""
_NAME = re.compile(r"\b[A-Za-z_]\w{2,}")
_MARKED = re.compile(r"`([^`\n]+)`|\"([^\"\n]+)\"|(\b[A-Za-z_]\w*)\(")
"""Names that a text marks as those of a program: between backticks or quotes, or with a parenthesis."""
_IMPORT = re.compile(r"^\s*(?:from|import)\s+(\w+)", re.MULTILINE)


def loses_what_it_names(reasoning: str, failed: str, correction: str) -> bool:
    """Return whether reasoning names a part of the failed program that the correction doesn't have.

    Examples:
        >>> from cleaner_rl.logs.reasoning import loses_what_it_names
        >>> loses_what_it_names("I use `exp`.", "from math import exp", "import math")
        True
        >>> loses_what_it_names("I use sympy.", "import sympy", "import math")
        True
        >>> loses_what_it_names("I print the value.", "print(value)", "print(1)")
        False
    """
    marked = {name for found in _MARKED.findall(reasoning) for part in found for name in _NAME.findall(part)}
    modules = {name.lower() for name in _IMPORT.findall(failed)} & {name.lower() for name in _NAME.findall(reasoning)}
    lost = {*_NAME.findall(failed)} - {*_NAME.findall(correction)}
    return bool(marked & lost) or not modules <= {name.lower() for name in _NAME.findall(correction)}

"""How alike two pieces of code are, from 0 to 1: what decides between a graft and a replacement.

- `difflib`: Ratcliff/Obershelp over characters, as in the paper, but without the junk heuristic and as the larger value
  of both orders.
- `indel`: twice the longest common subsequence of characters over both lengths.
- `tokens`: the same over Python lexemes; any text has them, and layout and comments don't count.
- `ast`: the same over the nodes, names and constants of the syntax tree.

All are symmetric, and 1 for equal code. All are bounded in time: where a measure is too slow or impossible, another one
replaces it, and `Similarity.measure` names both: `difflib>words` beyond `bounded.MAX_STEPS`, `ast>tokens` where a side
does not parse, and `...>lines` beyond `MAX_LENGTH` characters.

Limits: `ast` silences warnings while it parses, which before Python 3.14 can
silence those of other threads at that moment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from cleaner_rl.purify.similarity import lexemes

MAX_LENGTH = 50_000
"""Characters of the longer text beyond which only lines are compared; indel is quadratic."""

__all__ = ["SIMILARITY_MEASURES", "Similarity", "similarity"]


@dataclass(frozen=True, slots=True)
class Similarity:
    """A value, and the measure that gave it."""

    value: float
    measure: str
    """The measure that was asked for, then after `>` each one that replaced it; the last one gave the value."""


def similarity(original: str, verified: str, measure: str = "difflib") -> Similarity:
    """Return how alike the original code and its verified correction are."""
    if measure not in _MEASURES:
        raise ValueError(f"no similarity measure is named {measure!r}; take one of {', '.join(SIMILARITY_MEASURES)}")
    if original == verified:
        return Similarity(1.0, measure)
    if max(len(original), len(verified)) > MAX_LENGTH:
        return Similarity(_lines(original, verified), f"{measure}>lines")
    return _MEASURES[measure](original, verified)


def _difflib(a: str, b: str) -> Similarity:
    from cleaner_rl.purify.similarity import bounded  # it imports rapidfuzz, see `_indel`

    try:
        return Similarity(bounded.ratio(a, b), "difflib")
    except bounded.TooManyStepsError:
        return Similarity(_indel(lexemes.words(a), lexemes.words(b)), "difflib>words")


def _tokens(a: str, b: str) -> float:
    return _indel(lexemes.tokens(a), lexemes.tokens(b))


def _ast(a: str, b: str) -> Similarity:
    nodes_a, nodes_b = lexemes.nodes(a), lexemes.nodes(b)
    if nodes_a is None or nodes_b is None:
        return Similarity(_tokens(a, b), "ast>tokens")
    return Similarity(_indel(nodes_a, nodes_b), "ast")


def _indel(a: Sequence[Hashable], b: Sequence[Hashable]) -> float:
    if not isinstance(a, str):
        # Numbered, since rapidfuzz compares hashes, and those of (-1,) and (-2,) are the same.
        numbers: dict[Hashable, int] = {}
        a, b = ([numbers.setdefault(item, len(numbers)) for item in items] for items in (a, b))
    from rapidfuzz.distance import Indel  # loaded when it is needed: most pairs are exact without it

    size = len(a) + len(b)
    # Not the normalized one, which is rounded twice: 0.6 must be the 0.6 that somebody writes as a threshold.
    return Indel.similarity(a, b) / size if size else 1.0


def _lines(a: str, b: str) -> float:
    """Return the share of characters in lines that both have, wherever they stand."""
    lines_a, lines_b = (Counter(text.splitlines(keepends=True)) for text in (a, b))
    shared = sum(len(line) * count for line, count in (lines_a & lines_b).items())
    return 2.0 * shared / (len(a) + len(b))


_MEASURES: dict[str, Callable[[str, str], Similarity]] = {
    "difflib": _difflib,
    "indel": lambda a, b: Similarity(_indel(a, b), "indel"),
    "tokens": lambda a, b: Similarity(_tokens(a, b), "tokens"),
    "ast": _ast,
}

SIMILARITY_MEASURES = tuple(sorted(_MEASURES))
"""Names of the measures."""

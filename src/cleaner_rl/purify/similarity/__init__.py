"""How alike two pieces of code are, from 0 to 1: what decides between a graft and a replacement.

- `difflib`: Ratcliff/Obershelp over characters, as in the paper, but without the junk heuristic and as the larger value
  of both orders.
- `indel`: twice the longest common subsequence of characters over both lengths.
- `tokens`: the same over Python lexemes; any text has them, and layout and comments don't count.
- `ast`: the same over the nodes, names and constants of the syntax tree.

All are symmetric, and 1 for equal code. All are bounded in time: where a measure is too slow or impossible, another one
replaces it, and `Similarity.measure` names both: `difflib>words` beyond `bounded.MAX_STEPS`, `ast>tokens` where a side
does not parse, and `...>lines` beyond `MAX_LENGTH` characters.

Other packages add a measure, a function of two texts that returns a number from 0 to 1, with an entry point in the
group `cleaner_rl.similarity_measures`.

Limits: a plug-in is trusted to be symmetric. `ast` silences warnings while it parses, which before Python 3.14 can
silence those of other threads at that moment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias

from cleaner_rl.purify.similarity import lexemes
from cleaner_rl.tools import Plugins

MAX_LENGTH = 50_000
"""Characters of the longer text beyond which only lines are compared; indel is quadratic."""

Measure: TypeAlias = Literal["difflib", "indel", "tokens", "ast"] | str
"""A measure of ours, or the name of a plug-in's."""

__all__ = ["SIMILARITY_MEASURES", "Measure", "Similarity", "similarity", "similarity_measures"]


@dataclass(frozen=True, slots=True)
class Similarity:
    """A value, and the measure that gave it."""

    value: float
    measure: str
    """The measure that was asked for, then after `>` each one that replaced it; the last one gave the value."""


def similarity(original: str, verified: str, measure: Measure = "difflib") -> Similarity:
    """Return how alike the original code and its verified correction are."""
    if measure not in _OURS:
        return Similarity(_plugin_value(measure, original, verified), measure)
    if original == verified:
        return Similarity(1.0, measure)
    if max(len(original), len(verified)) > MAX_LENGTH:
        return Similarity(_lines(original, verified), f"{measure}>lines")
    return _OURS[measure](original, verified)


def similarity_measures() -> list[str]:
    """Return the names that `similarity` knows, ours and those of other installed packages."""
    return SIMILARITY_MEASURES.names()


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


_OURS: dict[str, Callable[[str, str], Similarity]] = {
    "difflib": _difflib,
    "indel": lambda a, b: Similarity(_indel(a, b), "indel"),
    "tokens": lambda a, b: Similarity(_tokens(a, b), "tokens"),
    "ast": _ast,
}

SIMILARITY_MEASURES: Plugins[Callable[[str, str], float]] = Plugins(
    group="cleaner_rl.similarity_measures",
    what="similarity measure",
    ours=dict.fromkeys(_OURS, __name__),
    needs=("__call__",),
    called=False,
)
_plugin = cache(SIMILARITY_MEASURES.load)


def _plugin_value(name: str, a: str, b: str) -> float:
    value = float(_plugin(name)(a, b))
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"the similarity measure {name!r} gave {value}, which is not from 0 to 1")
    return value

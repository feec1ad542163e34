"""The standard library's `difflib`, symmetric and within a bound of counted steps.

`SequenceMatcher` without its junk heuristic (`autojunk`) needs time that grows with the cube of the length in the worst
case: 87 seconds for a repetitive pair of 10 kB. `ratio` therefore counts the steps before each search and gives up
beyond `MAX_STEPS`. The count depends on the two texts only, never on a clock, so every machine decides alike.
"""

from __future__ import annotations

from collections import Counter
from difflib import Match, SequenceMatcher
from itertools import accumulate

from rapidfuzz.distance import LCSseq, Postfix, Prefix

MAX_STEPS = 150_000
"""Steps after which a pair is given up. One step takes about 0.1 microseconds."""
POSITION, SEARCH = 2, 25
"""Steps for each position that a search passes, and for each search, besides the pairs of equal characters."""


class TooManyStepsError(Exception):
    """The pair needs more steps than allowed."""


def ratio(a: str, b: str, max_steps: int = MAX_STEPS) -> float:
    """Return the Ratcliff/Obershelp similarity of two different texts: the larger value of both orders.

    The value is that of `SequenceMatcher(None, a, b, autojunk=False).ratio()`, with one exception: if the common
    beginning and end make up half of the longer text or more, they are matched before anything else. Corrections
    mostly change few places, so most pairs need hardly any search.

    Raises:
        TooManyStepsError: The pair needs more than `max_steps`.
    """
    # Sorted, so that neither the value nor the number of steps depends on the order of the arguments.
    a, b = sorted((a, b), key=lambda text: (len(text), text))
    size = len(a) + len(b)
    begin = Prefix.similarity(a, b)
    end = Postfix.similarity(a[begin:], b[begin:])
    ends = begin + end
    if 2 * ends < len(b):
        ends = 0
    else:
        a, b = a[begin : len(a) - end], b[begin : len(b) - end]
    matcher = _CountingMatcher(a, b, max_steps)
    matched = matcher.matched()
    if matched < LCSseq.similarity(a, b):  # no order can match more than the longest common subsequence
        matched = max(matched, _CountingMatcher(b, a, matcher.steps_left).matched())
    return 2.0 * (ends + matched) / size


class _CountingMatcher(SequenceMatcher[str]):
    """A `SequenceMatcher` that counts an upper bound of its steps and gives up when there are too many."""

    def __init__(self, a: str, b: str, steps_left: int) -> None:
        super().__init__(None, a, b, autojunk=False)
        self.steps_left = steps_left
        count = Counter(b)
        self._steps_before = list(accumulate((POSITION + count[character] for character in a), initial=0))

    def matched(self) -> int:
        """Return the number of characters in matching blocks."""
        return sum(block.size for block in self.get_matching_blocks())

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None) -> Match:
        """Count the steps, then search: it compares each character of `a[alo:ahi]` with all equal ones of `b`."""
        last = -1 if ahi is None else ahi
        self.steps_left -= SEARCH + self._steps_before[last] - self._steps_before[alo]
        if self.steps_left < 0:
            raise TooManyStepsError
        return super().find_longest_match(alo, ahi, blo, bhi)

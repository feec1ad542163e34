"""maj@k: how often the most frequent of k answers is right, over all ways to choose k of a problem's samples.

Answers vote by their text, as the grader extracted it; a sample without an answer has no vote. Where several answers
have most votes, each of them wins equally often. If nobody votes, the answer is wrong.

The subsets are counted, not drawn. For an answer with t votes to win, no other may have more; so for each t the choices
of all others are counted as a polynomial in (samples chosen, answers that also have t votes).

Limits: two spellings of the same answer are two answers, which only ever lowers the figure of a model whose right
answers are spelled in several ways.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from math import comb

import numpy as np

from cleaner_rl.evaluate.bootstrap import Values


def maj_at_k(answers: Sequence[str | None], right: Sequence[bool], k: int) -> float:
    """Return the chance that the majority of `k` of these samples is right, ties being drawn by lot.

    Examples:
        >>> from cleaner_rl.evaluate import maj_at_k
        >>> maj_at_k(["7", "7", "8"], [True, True, False], 3)
        1.0
        >>> maj_at_k(["7", "8"], [True, False], 2)
        0.5
    """
    if not 1 <= k <= len(answers) or len(answers) != len(right):
        raise ValueError(f"maj@{k} needs at least {k} samples, each right or wrong; there are {len(answers)}")
    votes = Counter(answer for answer in answers if answer is not None)
    correct: dict[str, int] = defaultdict(int)
    for answer, one in zip(answers, right, strict=True):
        if answer is not None:
            correct[answer] += one
    silent = len(answers) - votes.total()
    wins = sum(
        correct[answer] / count * _wins(count, [votes[each] for each in votes if each != answer], silent, k)
        for answer, count in votes.items()
        if correct[answer]
    )
    return wins / comb(len(answers), k)


def _wins(own: int, others: Sequence[int], silent: int, k: int) -> float:
    """The number of subsets of size k that an answer with `own` votes wins, shared where it ties."""
    won = 0.0
    for most in range(1, min(own, k) + 1):
        ways = np.zeros((k - most + 1, k // most))  # (samples of others, others that tie)
        ways[0, 0] = 1.0
        for count in others:
            ways = _chosen(ways, count, most)
        for samples, tied in np.argwhere(ways):
            left = k - most - int(samples)
            won += comb(own, most) * comb(silent, left) * float(ways[samples, tied]) / (int(tied) + 1)
    return won


def _chosen(ways: Values, count: int, most: int) -> Values:
    """The same with one answer more, of which up to `most` votes may be among the samples."""
    grown = np.zeros_like(ways)
    for votes in range(min(count, most, len(ways) - 1) + 1):
        kept = comb(count, votes) * ways[: len(ways) - votes]
        if votes < most:
            grown[votes:] += kept
        else:
            grown[votes:, 1:] += kept[:, :-1]
    return grown

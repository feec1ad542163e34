"""Compares names and short texts: whether one is the other with a slip, and whether two paths mean the same thing."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable

from rapidfuzz.distance import OSA

from cleaner_rl.purify import code_similarity

SUBSTITUTED, TWICE = 5, 6
"""Characters that a name needs for a slip that exchanges one, and for two slips: `cat` and `car` are two names."""
MOST_SLIPS = 100
"""Different words beyond which two texts are not searched for slips: every pair would have to be compared."""
_DIGITS = re.compile(r"\d+")
_COMPARISON = re.compile(r"[<>!]=?|[=~]=|[-+*/%]=")
_WORD = re.compile(r"[^\W\d_]+|\d+")


def alike(first: str, second: str) -> float:
    """Return how similar two texts are, from 0 to 1."""
    return code_similarity(first, second).value


def words(text: str) -> list[str]:
    """Return the words and numbers of a text in lower case, without what is between them."""
    return [each.lower() for each in _WORD.findall(text)]


def misspelt(first: str, second: str) -> bool:
    """Return whether one name is the other with a slip: a letter too many, too few, exchanged or at the wrong place.

    The first letter and all digits have to be the same: `import` and `export`, `part1` and `part2` are two names.
    """
    first, second = first.lower(), second.lower()
    if first == second:
        return True
    if min(len(first), len(second)) < 2 or first[0] != second[0] or _DIGITS.findall(first) != _DIGITS.findall(second):
        return False
    distance = OSA.distance(first, second, score_cutoff=2)
    shortest = min(len(first), len(second))
    if distance == 1:
        same_letters = len(first) != len(second) or sorted(first) == sorted(second)
        return shortest >= (2 if same_letters else SUBSTITUTED)
    return distance == 2 and shortest >= TWICE


def lost_and_new(first: str, second: str) -> tuple[list[str], list[str]]:
    """Return the words of the first text that the second lacks, and those that it has instead, but for slips."""
    return unmatched(words(first), words(second))


def unmatched(before: Iterable[str], after: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return what is gone and what has come between two collections of words; a word with a slip is neither."""
    old, new = Counter(before), Counter(after)
    gone, come = list((old - new).elements()), list((new - old).elements())
    if len(gone) > MOST_SLIPS or len(come) > MOST_SLIPS:
        return gone, come
    for each in tuple(gone):
        match = next((other for other in come if misspelt(each, other)), None)
        if match is not None:
            gone.remove(each)
            come.remove(match)
    return gone, come


def same_words(first: str, second: str) -> bool:
    """Return whether two texts have the same words and numbers, but for slips and for what is between them."""
    if same_letters(first, second):
        return True
    gone, come = lost_and_new(first, second)
    return not gone and not come


def same_letters(first: str, second: str) -> bool:
    """Return whether two names differ in nothing but case and signs: `user_id`, `userId`."""
    return _plain(first) == _plain(second)


def comparisons(text: str) -> list[str]:
    """Return the signs of a text that compare or negate: without them the opposite is said with the same words."""
    return _COMPARISON.findall(text)


def same_path(first: str, second: str) -> bool:
    """Return whether two paths mean one file: one is the end of the other, or they differ by a slip in their names."""
    old, new = _parts(first), _parts(second)
    if old == new:
        return True
    shorter, longer = sorted((old, new), key=len)
    if len(shorter) != len(longer):
        # The same file with more of its folders before it, or with one between.
        return bool(shorter) and len(shorter[-1]) > 1 and _is_within(shorter, longer)
    different = [(one, other) for one, other in zip(old, new, strict=True) if one != other]
    return len(different) == 1 and _same_name(*different[0])


def _parts(path: str) -> list[str]:
    return [each for each in posixpath.normpath(path.strip("'\"`")).split("/") if each not in ("", ".")]


def _is_within(shorter: list[str], longer: list[str]) -> bool:
    rest = iter(longer)
    return shorter[-1] == longer[-1] and all(each in rest for each in shorter)


def _same_name(first: str, second: str) -> bool:
    if same_letters(first, second):
        return True
    (stem, ending), (other, other_ending) = posixpath.splitext(first), posixpath.splitext(second)
    if stem == other:
        # Another ending is another file (`a.c`, `a.h`), unless it was left out, cut or misspelt (`.yml`, `.yaml`).
        return not (ending and other_ending) or misspelt(ending[1:], other_ending[1:]) or _is_cut(ending, other_ending)
    if ending != other_ending:
        return False
    old, new = words(stem), words(other)
    if len(old) != len(new):
        return misspelt(stem, other)
    return sum(one != two for one, two in zip(old, new, strict=True)) == 1 and all(map(misspelt, old, new))


def _is_cut(ending: str, other: str) -> bool:
    shorter, longer = sorted((ending, other), key=len)
    return len(shorter) > 1 and longer.startswith(shorter)


def _plain(name: str) -> str:
    return re.sub(r"\W|_", "", name).lower()

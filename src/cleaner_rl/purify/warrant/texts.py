"""Compares names and short texts: whether one is a misspelt other, and whether two paths mean the same thing."""

from __future__ import annotations

import posixpath
import re
from difflib import SequenceMatcher

from rapidfuzz.distance import OSA

MISSPELT = 2
SHORTEST = 4
"""Characters of a name that can be misspelt: of two shorter ones nobody can say."""
_DIGITS = re.compile(r"\d+")


def alike(first: str, second: str) -> float:
    """Return how similar two texts are, from 0 to 1."""
    return SequenceMatcher(None, first, second, autojunk=False).ratio()


def misspelt(first: str, second: str) -> bool:
    """Return whether one name is the other with a slip or two, and not the next one of a series (`part1`, `part2`)."""
    (first, ending), (second, other_ending) = posixpath.splitext(first), posixpath.splitext(second)
    if ending != other_ending and not (first == second or misspelt(ending, other_ending)):
        return False
    if min(len(first), len(second)) < SHORTEST or _DIGITS.findall(first) != _DIGITS.findall(second):
        return False
    distance = OSA.distance(first.lower(), second.lower(), score_cutoff=MISSPELT)
    return distance <= MISSPELT and distance * 3 <= min(len(first), len(second))


def same_path(first: str, second: str) -> bool:
    """Return whether two paths mean one file: the same name elsewhere, or a name with a slip in the same place."""
    if first == second:
        return True
    folder, name = posixpath.split(first.rstrip("/"))
    other_folder, other_name = posixpath.split(second.rstrip("/"))
    if _plain(name) == _plain(other_name) and len(name) > 1:
        return True
    return misspelt(name, other_name) and (folder == other_folder or folder.endswith(other_folder))


def _plain(name: str) -> str:
    return re.sub(r"[-_ ]", "", name).lower()

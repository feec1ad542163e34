"""Matches every pattern of `logs.sentences` with texts that make it repeat itself; a test runs this with a CPU limit.

For each unbounded or long repeat of a pattern, a text leads up to the repeat and then goes round it until it has
`LENGTH` characters, with each way round and each pair of ways, and ends so that the pattern fails.
"""

from __future__ import annotations

import itertools
import re
import re._constants as codes  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
import sys
from collections.abc import Iterator
from typing import Any

from cleaner_rl.logs import sentences

LENGTH, LONG = 2_000, 50
CHARACTERS = "a1 \t\n._-':(/,Z)]\"`"
UNITS = (
    "_",
    "a",
    " ",
    "\n",
    "'",
    "\\",
    "(",
    "[",
    ".",
    "Error: ",
    "ERROR: ",
    "error:",
    "a.",
    "a: ",
    "1",
    "# ",
    "/",
    "no ",
)
"""Ways round for every pattern."""
LAST = "\0!\n"


def patterns(value: object) -> Iterator[re.Pattern[str]]:
    """Every compiled pattern in a value, or in a table of it."""
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict):
        yield from patterns(tuple(value.values()))
    elif isinstance(value, tuple):
        for each in value:
            yield from patterns(each)


def written(tree: Any) -> str:
    """A short text that a part of a pattern matches, as far as it looks at characters alone."""
    text = ""
    for kind, value in tree:
        if kind is codes.LITERAL:
            text += chr(value)
        elif kind in (codes.ANY, codes.NOT_LITERAL):
            text += "a"
        elif kind is codes.IN:
            text += _one_of(value)
        elif kind is codes.BRANCH:
            text += written(value[1][0])
        elif kind is codes.SUBPATTERN:
            text += written(value[3])
        elif kind in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            text += written(value[2]) * value[0]
    return text


def _one_of(choices: Any) -> str:
    negated = choices[0][0] is codes.NEGATE
    return next((each for each in CHARACTERS if _holds(choices, each) != negated), "\u2502")


def _holds(choices: Any, character: str) -> bool:
    classes = {codes.CATEGORY_WORD: r"\w", codes.CATEGORY_SPACE: r"\s", codes.CATEGORY_DIGIT: r"\d"}
    classes |= {codes.CATEGORY_NOT_WORD: r"\W", codes.CATEGORY_NOT_SPACE: r"\S", codes.CATEGORY_NOT_DIGIT: r"\D"}
    return any(
        (kind is codes.LITERAL and value == ord(character))
        or (kind is codes.RANGE and value[0] <= ord(character) <= value[1])
        or (kind is codes.CATEGORY and re.match(classes[value], character))
        for kind, value in choices
    )


def ways(tree: Any) -> Iterator[str]:
    """Texts that lead once through a part of a pattern."""
    for kind, value in tree:
        if kind is codes.BRANCH:
            yield from map(written, value[1])
        elif kind is codes.SUBPATTERN:
            yield from ways(value[3])
    yield written(tree)


def rounds(tree: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """For each repeat, a text that leads up to it, and one that goes round it."""
    for step in tree:
        kind, value = step
        if kind is codes.BRANCH:
            for branch in value[1]:
                yield from rounds(branch, before)
        elif kind is codes.SUBPATTERN:
            yield from rounds(value[3], before)
        elif kind in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            if value[1] >= LONG:
                each = [way for way in dict.fromkeys(ways(value[2])) if way]
                yield from ((before, way) for way in (*each, *map("".join, itertools.combinations(each, 2))))
            yield from rounds(value[2], before)
        before += written([step])


def texts(pattern: re.Pattern[str]) -> Iterator[str]:
    """The hostile texts for a pattern."""
    found = dict.fromkeys((*rounds(parser.parse(pattern.pattern, pattern.flags)), *(("", unit) for unit in UNITS)))
    for before, unit in found:
        yield before + unit * (LENGTH // len(unit)) + LAST


def main() -> None:
    """Match each pattern as the module does."""
    searched = {each.pattern for each in (*sentences.FAILED_TAIL, *sentences.OK_TAIL)}
    count = 0
    for pattern in dict.fromkeys(patterns(tuple(vars(sentences).values()))):
        for text in texts(pattern):
            (pattern.search if pattern in searched else pattern.match)(text)
            count += 1
    sys.stdout.write(f"{count}\n")


if __name__ == "__main__":
    main()

"""Training tasks that hold a piece of a benchmark, found by normalised n-grams and reported one by one.

Two texts share an n-gram if the same n words follow each other, whatever their case, punctuation and LaTeX dress; a
Chinese, Japanese or Korean character is a word. A benchmark item shorter than n words has to be contained as a whole.
What occurs in three or more items of the benchmarks is a phrase ("relatively prime positive integers, find m + n"),
which says nothing about where a task comes from, and is ignored.

Limits: it finds copies, not paraphrases, translations or changed numbers. An item of fewer than `SHORTEST` words is
never found: it would match by chance.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cleaner_rl.tasks.task import Task

PHRASE = 3
SHORTEST = 5

_COMMAND = re.compile(r"\\(?:left|right|displaystyle|text|mathrm|mathbf|textbf|[dt]?(?=frac)|[,;:! ()\[\]])")
_WORD = re.compile(r"[぀-ヿ㐀-䶿一-鿿가-힯]|[^\W_]+")


@dataclass(frozen=True, slots=True)
class Match:
    """A task that contains a piece of a benchmark."""

    task: str
    benchmark: str
    item: str
    ngram: str


@dataclass(frozen=True, slots=True)
class Decontaminated:
    """The tasks without a match, and the matches of the others."""

    clean: tuple[Task, ...]
    matches: tuple[Match, ...]
    """The first match in each task that was removed."""


def decontaminate(tasks: Iterable[Task], benchmarks: Mapping[str, Iterable[Task]], n: int = 13) -> Decontaminated:
    """Remove the tasks whose question shares an n-gram with a question of the benchmarks, which are given by name."""
    if n < SHORTEST:
        raise ValueError(f"n={n} words match by chance; take {SHORTEST} or more")
    index = _index(benchmarks, n)
    lengths = sorted({len(gram) for gram in index}, reverse=True)
    clean: list[Task] = []
    matches: list[Match] = []
    for task in tasks:
        match = _first_match(task, index, lengths)
        if match is None:
            clean.append(task)
        else:
            matches.append(match)
    return Decontaminated(tuple(clean), tuple(matches))


def words(text: str) -> list[str]:
    """A text as its bare words."""
    plain = _COMMAND.sub(" ", unicodedata.normalize("NFKC", text))
    return _WORD.findall(plain.casefold())


def _index(benchmarks: Mapping[str, Iterable[Task]], n: int) -> dict[tuple[str, ...], tuple[str, str]]:
    """Each n-gram that isn't a mere phrase, with the first item that has it."""
    found: dict[tuple[str, ...], tuple[str, str]] = {}
    items_with: dict[tuple[str, ...], int] = {}
    seen: set[tuple[str, ...]] = set()
    for name, items in benchmarks.items():
        for item in items:
            text = tuple(words(item.question))
            # The same item in two benchmarks must not make its own words look like a phrase.
            if len(text) < SHORTEST or text in seen:
                continue
            seen.add(text)
            for gram in set(_grams(text, min(n, len(text)))):
                found.setdefault(gram, (name, item.id))
                items_with[gram] = items_with.get(gram, 0) + 1
    return {gram: item for gram, item in found.items() if items_with[gram] < PHRASE}


def _first_match(task: Task, index: Mapping[tuple[str, ...], tuple[str, str]], lengths: Sequence[int]) -> Match | None:
    text = tuple(words(task.question))
    for length in lengths:
        for gram in _grams(text, length):
            if gram in index:
                benchmark, item = index[gram]
                return Match(task.id, benchmark, item, " ".join(gram))
    return None


def _grams(text: Sequence[str], n: int) -> Iterable[tuple[str, ...]]:
    return (tuple(text[start : start + n]) for start in range(len(text) - n + 1))

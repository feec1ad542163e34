"""Figures as words and tables of Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from benchmarks.lab.summary import Points, Spread, Summary


def ranged(found: Spread, words: Callable[[float], str] = lambda value: f"{value:.2f}") -> str:
    """The mean, with the least and the most of the seeds, and how many of them never came to it."""
    if found.mean is None:
        return "never"
    apart = [f"{words(min(found.values))}–{words(max(found.values))}"] if len(found.values) > 1 else []
    if missing := found.seeds - len(found.values):
        apart.append(f"{missing} of {found.seeds} never")
    return f"{words(found.mean)} ({'; '.join(apart)})" if apart else words(found.mean)


def worst(each: Summary) -> str:
    """The least difference at equal tokens: of means over seeds, and of single seeds."""
    found = signed(each.worst)
    return f"{found} ({signed(each.worst_seed)})" if each.seeds > 1 and found else found


def percent(value: float) -> str:
    """A share."""
    return f"{100 * value:.1f} %"


def course(points: Points, words: Callable[[float], str]) -> str:
    """Its values, one after the other."""
    return " → ".join(words(value) for _, value in points)


def points_apart(one: float | None, other: float | None) -> str:
    """The first minus the second."""
    return signed(None if one is None or other is None else one - other)


def signed(value: float | None) -> str:
    """A difference of shares; nothing if there is none."""
    return "" if value is None else f"{100 * value:+.1f} points"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)

"""Formats figures as text and as Markdown tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from benchmarks.lab.summary import Points, Spread, Summary


def ranged(found: Spread, words: Callable[[float], str] = lambda value: f"{value:.2f}") -> str:
    """Format the mean with the range over seeds, and how many seeds never reached it."""
    if found.mean is None:
        return "never"
    apart = [f"{words(min(found.values))}–{words(max(found.values))}"] if len(found.values) > 1 else []
    if missing := found.seeds - len(found.values):
        apart.append(f"{missing} of {found.seeds} never")
    return f"{words(found.mean)} ({'; '.join(apart)})" if apart else words(found.mean)


def worst(each: Summary) -> str:
    """Format the worst difference at equal tokens: of the mean over seeds, and of the worst seed."""
    found = signed(each.worst)
    return f"{found} ({signed(each.worst_seed)})" if each.seeds > 1 and found else found


def percent(value: float) -> str:
    """Format a share."""
    return f"{100 * value:.1f} %"


def course(points: Points, words: Callable[[float], str]) -> str:
    """Format the values of a curve in order."""
    return " → ".join(words(value) for _, value in points)


def points_apart(one: float | None, other: float | None) -> str:
    """Format the first minus the second."""
    return signed(None if one is None or other is None else one - other)


def signed(value: float | None) -> str:
    """Format a difference of shares; an empty text if there is none."""
    return "" if value is None else f"{100 * value:+.1f} points"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)

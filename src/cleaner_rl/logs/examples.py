"""Shows repairs as examples: the lines of a failed call that its correction changed, before and after.

They are for people, in a summary; the store has the whole edit.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher
from itertools import groupby
from typing import Any, NamedTuple

from cleaner_rl.logs.formats.base import log_of
from cleaner_rl.logs.tracebacks import plain
from cleaner_rl.tools import ToolResult
from cleaner_rl.trajectory import Edit, Trajectory, Turn

OF_EACH_TOOL = 3
"""Examples that are kept of each kind of tool."""
LINES, WIDTH, COMPARED = 2, 100, 400
"""Lines of an example and their characters, and the lines of a program that are looked at for them."""


class EditExample(NamedTuple):
    """A repair, shortened: the lines that differ between the failed call and its correction."""

    tool: str
    """What the call does, a `CallKind`."""
    file: str
    """The file of the log."""
    line: int | None
    """The record's line or row in the file, from 1."""
    id: str | None
    """The record's own id."""
    kind: str
    """A graft or a replacement."""
    before: tuple[str, ...]
    """Lines of the failed call. Empty if the correction only adds some."""
    error: str
    """What the failed call gave, in a line."""
    after: tuple[str, ...]
    """Lines of the correction. Empty if it only takes some out."""

    def to_json(self) -> dict[str, Any]:
        """Return it as one JSON object."""
        return self._asdict()


def example(trajectory: Trajectory[Any], turn: Turn[Any], edit: Edit[Any], tool: str) -> EditExample:
    """Return a repair of a trajectory as an example."""
    failed = edit.original[0]
    source = log_of(trajectory).get("source") or {"file": str(trajectory.key), "line": None, "id": None}
    before, after = _changed(_lines(failed.code), _lines(turn.code))
    error = next((error_of(result) for result in failed.results if result.failed), "")
    own = None if source["id"] is None else str(source["id"])
    return EditExample(tool, source["file"], source["line"], own, edit.kind.value, before, error, after)


def first_of_each(examples: Iterable[EditExample]) -> tuple[EditExample, ...]:
    """Return the first examples of each tool, whichever order they come in."""
    ordered = sorted(set(examples), key=lambda each: (each.tool, each.file, each.line or 0, repr(each)))
    groups = (list(group) for _, group in groupby(ordered, lambda each: each.tool))
    return tuple(each for group in groups for each in group[:OF_EACH_TOOL])


def in_turns(examples: Iterable[EditExample], count: int) -> list[EditExample]:
    """Return so many examples: the first of each tool, then the second ones."""
    groups = [list(group) for _, group in groupby(examples, lambda each: each.tool)]
    by_turn = [group[place] for place in range(OF_EACH_TOOL) for group in groups if place < len(group)]
    return by_turn[:count]


def _lines(code: str) -> list[str]:
    return [line.rstrip() for line in code.splitlines()[:COMPARED] if line.strip()]


def _changed(before: list[str], after: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the lines around the first difference."""
    for tag, start, end, first, last in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            return _shown(before[start:end]), _shown(after[first:last])
    return _shown(before), _shown(after)


def _shown(lines: list[str]) -> tuple[str, ...]:
    return tuple(_cut(line) for line in lines[:LINES])


def error_of(result: ToolResult) -> str:
    """Return what a call gave, in a line."""
    if result.exception is not None:
        return _cut(f"{result.exception.type}: {result.exception.message}")
    said = [line for line in plain(result.stderr or result.output or result.explanation).splitlines() if line.strip()]
    return _cut(said[-1].strip()) if said else result.status.value


def _cut(line: str) -> str:
    """Return a line without characters that a terminal would obey, shortened."""
    shown = "".join(each if each.isprintable() else " " for each in line[: WIDTH + 1])
    return shown if len(shown) <= WIDTH else f"{shown[: WIDTH - 1]}…"

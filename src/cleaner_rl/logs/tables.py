"""Counts by tool name and by file, and the most frequent errors: the tables of `report.md`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from cleaner_rl.logs.examples import error_of
from cleaner_rl.logs.formats.base import Record, log_of
from cleaner_rl.trajectory import Trajectory

REPORT = "report.md"
ERRORS, KEPT_ERRORS = 20, 500
"""Errors that are shown, and that a unit keeps."""
LISTED = 200
"""Tools and files that are shown, those with the most failed calls first."""
HEADS = ("calls", "failed", "no result", "unsure", "repaired", "masked", "trained", "trained tokens")


@dataclass(slots=True)
class Counts:
    """Counts of calls; two can be added."""

    calls: int = 0
    failed: int = 0
    no_result: int = 0
    unsure: int = 0
    repaired: int = 0
    """Failed calls that a repair took out."""
    masked: int = 0
    """Calls in SFT rows that are out of the loss."""
    trained: int = 0
    """Calls in SFT rows that are in the loss."""
    tokens: int = 0
    """Tokens of the trained messages; without a tokenizer, a quarter of their characters."""

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    def row(self) -> tuple[int, ...]:
        """Return the counts in the order of `HEADS`."""
        return tuple(getattr(self, each.name) for each in fields(self))


NAMES = tuple(each.name for each in fields(Counts))


class ByName(dict[str, Counts]):
    """Counts by name; two can be added."""

    def __missing__(self, name: str) -> Counts:
        return self.setdefault(name, Counts())

    def __add__(self, other: ByName) -> ByName:
        names = sorted(self.keys() | other.keys())
        return ByName({name: self.get(name, Counts()) + other.get(name, Counts()) for name in names})


@dataclass(slots=True)
class Tables:
    """Counts by tool name and by file, and errors; two can be added."""

    tools: ByName = field(default_factory=ByName)
    files: ByName = field(default_factory=ByName)
    errors: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: Tables) -> Tables:
        errors = Counter(dict((self.errors + other.errors).most_common(KEPT_ERRORS)))
        return Tables(self.tools + other.tools, self.files + other.files, errors)

    def add(self, before: Trajectory[Any], after: Trajectory[Any]) -> None:
        """Count the calls of a trajectory before and after its repairs."""
        gone = {id(turn) for each in after.turns if each.edit is not None for turn in each.edit.original}
        file = self.files[file_of(before)]
        for turn in before.turns:
            for place, call in enumerate(turn.calls):
                result = turn.results[place] if place < len(turn.results) else None
                failed = result is not None and result.failed
                for counts in (self.tools[call.name], file):
                    counts.calls += 1
                    counts.failed += failed
                    counts.no_result += result is None and turn.observation is None
                    counts.unsure += result is None and turn.observation is not None
                    counts.repaired += failed and id(turn) in gone
                if result is not None and result.failed:
                    self.errors[f"{call.name}: {error_of(result)}"] += 1

    def add_rows(self, trajectory: Trajectory[Any], rows: Sequence[Record], count: Callable[[str], int]) -> None:
        """Count the calls in SFT rows of a trajectory; `count` gives the tokens of a text."""
        file = self.files[file_of(trajectory)]
        for row in rows:
            for message, mask, turn in zip(row["messages"], row["loss_mask"], row["turns"], strict=True):
                if turn is None:
                    continue
                names = [call.name for call in trajectory.turns[turn].calls]
                tokens = count(_words(message)) if mask else 0
                file.tokens += tokens
                for place, name in enumerate(names):
                    for counts in (self.tools[name], file):
                        counts.masked += not mask
                        counts.trained += bool(mask)
                    self.tools[name].tokens += tokens if place == 0 else 0

    def to_json(self) -> dict[str, Any]:
        """Return it as one JSON object."""
        named = {
            kind: {name: dict(zip(NAMES, counts.row(), strict=True)) for name, counts in getattr(self, kind).items()}
            for kind in ("tools", "files")
        }
        return {**named, "errors": dict(self.errors)}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Tables:
        """Return what `to_json` wrote."""
        tools, files = (
            ByName({name: Counts(**counts) for name, counts in kept.get(kind, {}).items()})
            for kind in ("tools", "files")
        )
        return cls(tools, files, Counter(kept.get("errors", {})))

    def as_markdown(self) -> str:
        """Return the tables."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield "# What `cleaner purify` found"
        for title, named in (("Tool", self.tools), ("File", self.files)):
            yield from ("", f"| {title} | {' | '.join(HEADS)} |", "| --- " * (len(HEADS) + 1) + "|")
            ordered = sorted(named.items(), key=lambda each: (-each[1].failed, -each[1].calls, each[0]))
            for name, counts in ordered[:LISTED]:
                yield f"| {_cell(name)} | {' | '.join(f'{each:,}' for each in counts.row())} |"
            if len(ordered) > LISTED:
                yield f"| {len(ordered) - LISTED:,} more |{' |' * len(HEADS)}"
        yield from ("", "| Failed calls | Error |", "| --- | --- |")
        yield from (f"| {count:,} | {_cell(error)} |" for error, count in self.errors.most_common(ERRORS))


def file_of(trajectory: Trajectory[Any]) -> str:
    """Return the file that a trajectory is from; of one of our own, its run."""
    return str(log_of(trajectory).get("source", {}).get("file") or trajectory.key.run)


def about_tokens(text: str) -> int:
    """Return about how many tokens a text has."""
    return len(text) // 4


def _words(message: Record) -> str:
    calls = [json.dumps(call["function"]["arguments"], ensure_ascii=False) for call in message.get("tool_calls", ())]
    return "\n".join([str(message.get("reasoning_content") or ""), str(message["content"]), *calls])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")

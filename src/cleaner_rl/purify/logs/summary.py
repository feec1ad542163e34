"""What happened to some trajectories, in numbers that add up: over a unit of work, and over all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from cleaner_rl.purify.logs.cleaning import Cleaned, abandoned, repeated_calls
from cleaner_rl.purify.logs.formats.base import log_of
from cleaner_rl.purify.logs.records import OPAQUE
from cleaner_rl.trajectory import Edit, TokenSpan, Trajectory


@dataclass(slots=True)
class Summary:
    """Counts; two of them add up."""

    trajectories: int = 0
    kept: int = 0
    """In the store; the others were dropped by `--verify`. What `--roc` drops is there too, and counted in `roc`."""
    edited: int = 0
    turns_before: int = 0
    turns_after: int = 0
    characters_before: int = 0
    characters_after: int = 0
    tokens_before: int = 0
    """Of trajectories that have tokens; those of a log have none."""
    tokens_after: int = 0
    failed_turns: int = 0
    """As the model left them."""
    collapsed_turns: int = 0
    """Failed turns that an edit took away."""
    unsure_turns: int = 0
    """Turns with calls of which nobody can tell how they ended: never touched."""
    repeated_calls: int = 0
    abandoned: int = 0
    edits: Counter[str] = field(default_factory=Counter)
    left_alone: Counter[str] = field(default_factory=Counter)
    """Failed turns that stay, by reason."""
    judged: Counter[str] = field(default_factory=Counter)
    """Results by what their status rests on: a field of the log, its text, or nothing."""
    not_read: Counter[str] = field(default_factory=Counter)
    """Records that went through as they are, by reason."""
    damaged: Counter[str] = field(default_factory=Counter)
    """Files of which only the beginning could be read, by what is wrong with them."""
    replayed: Counter[str] = field(default_factory=Counter)
    not_replayable: Counter[str] = field(default_factory=Counter)
    """Those among them that could not be replayed, by reason."""
    roc: Counter[str] = field(default_factory=Counter)
    sft_rows: int = 0
    no_row: Counter[str] = field(default_factory=Counter)
    """Trajectories that were read and make no row for supervised training, because of what it would lack."""

    def add(self, before: Trajectory[Any], cleaned: Cleaned[Any]) -> None:
        """Count one trajectory."""
        after = cleaned.trajectory
        self.trajectories += 1
        log = log_of(before)
        if OPAQUE in log:
            self.not_read[log[OPAQUE]] += 1
            return
        self.judged.update(log.get("judged", {}))
        self.turns_before += len(before.turns)
        self.turns_after += len(after.turns)
        if isinstance(before.prompt, TokenSpan):
            self.tokens_before += len(before)
            self.tokens_after += len(after)
        else:
            self.characters_before += len(before)
            self.characters_after += len(after)
        failed = sum(turn.failed for turn in before.turns)
        left = sum(turn.failed for turn in after.turns)
        self.failed_turns += failed
        self.collapsed_turns += failed - left
        self.unsure_turns += sum(bool(turn.calls) and not turn.results for turn in before.turns)
        new = _new_edits(before, after)
        self.edited += bool(new)
        self.edits.update(edit.granularity.value for edit in new)
        self.left_alone.update(each.reason.value for each in cleaned.left_alone)
        self.repeated_calls += repeated_calls(after)
        self.abandoned += abandoned(cleaned)

    def __add__(self, other: Summary) -> Summary:
        return Summary(**{each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)})

    def as_json(self) -> dict[str, Any]:
        """As one JSON object."""
        values = ((each.name, getattr(self, each.name)) for each in fields(self))
        return {name: dict(value) if isinstance(value, Counter) else value for name, value in values}

    @classmethod
    def of_json(cls, kept: dict[str, Any]) -> Summary:
        """The opposite of `as_json`."""
        made = cls()
        for name, value in kept.items():
            setattr(made, name, Counter(value) if isinstance(value, dict) else value)
        return made


def total(summaries: Iterable[Summary]) -> Summary:
    """All of them together."""
    return sum(summaries, Summary())


def _new_edits(before: Trajectory[Any], after: Trajectory[Any]) -> list[Edit[Any]]:
    # An edit that was there may have been noted more of; what it stands for is the very same.
    old = {id(edit.original) for _, edit in before.edits}
    return [edit for _, edit in after.edits if id(edit.original) not in old]

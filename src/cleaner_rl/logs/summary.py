"""Counts what was done to trajectories, so that the counts of units add up to those of a whole run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from cleaner_rl.logs.examples import OF_EACH_TOOL, EditExample, example, first_of_each
from cleaner_rl.logs.formats.base import log_of
from cleaner_rl.logs.purified import PurifiedLog, abandoned, repeated_calls
from cleaner_rl.logs.records import OPAQUE
from cleaner_rl.logs.tables import Tables
from cleaner_rl.tools import CallKind
from cleaner_rl.trajectory import Edit, TokenSpan, Trajectory, Turn

SECRET_PLACES = 3
"""Records that are named for each kind of secret."""


@dataclass(slots=True)
class ToolCounts:
    """Counts of the calls of one kind of tool; two can be added."""

    calls: int = 0
    failed: int = 0
    repaired: int = 0
    """Failed calls that a repair took out."""
    unsure: int = 0
    """Calls in turns with a result of which nobody can tell how they ended."""
    no_result: int = 0
    """Calls in turns that the log has no result of, such as the last one of a run that was stopped."""
    left_alone: Counter[str] = field(default_factory=Counter)
    """Failed calls that were not repaired, by reason (`purify.Reason`)."""

    def __add__(self, other: ToolCounts) -> ToolCounts:
        return ToolCounts(**{each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)})

    def to_json(self) -> dict[str, Any]:
        """Return it as one JSON object."""
        return {**{each.name: getattr(self, each.name) for each in fields(self)}, "left_alone": dict(self.left_alone)}


@dataclass(slots=True)
class FoundSecrets:
    """Secrets of one kind; two can be added."""

    count: int = 0
    places: tuple[tuple[str, int | None], ...] = ()
    """The first records that have one: file, and line or row from 1."""

    def __add__(self, other: FoundSecrets) -> FoundSecrets:
        places = sorted({*self.places, *other.places}, key=lambda place: (place[0], place[1] or 0))
        return FoundSecrets(self.count + other.count, tuple(places[:SECRET_PLACES]))


class Secrets(dict[str, FoundSecrets]):
    """Secrets by kind; two can be added."""

    def __add__(self, other: Secrets) -> Secrets:
        kinds = sorted(self.keys() | other.keys())
        return Secrets({kind: self.get(kind, FoundSecrets()) + other.get(kind, FoundSecrets()) for kind in kinds})

    def to_json(self) -> dict[str, Any]:
        """Return it as one JSON object."""
        return {
            kind: {"count": each.count, "places": [{"file": file, "line": line} for file, line in each.places]}
            for kind, each in self.items()
        }

    @classmethod
    def from_json(cls, kept: dict[str, Any]) -> Secrets:
        """Return what `to_json` wrote."""
        return cls(
            {
                kind: FoundSecrets(each["count"], tuple((place["file"], place["line"]) for place in each["places"]))
                for kind, each in kept.items()
            }
        )


class ByTool(dict[str, ToolCounts]):
    """Counts by the kind of the tool (`CallKind`); two can be added."""

    def __missing__(self, tool: str) -> ToolCounts:
        return self.setdefault(tool, ToolCounts())

    def __add__(self, other: ByTool) -> ByTool:
        names = [each.value for each in CallKind if each.value in self.keys() | other.keys()]
        return ByTool({name: self.get(name, ToolCounts()) + other.get(name, ToolCounts()) for name in names})


@dataclass(slots=True)
class PurifySummary:
    """Counts of what was done to trajectories; two summaries can be added."""

    trajectories: int = 0
    formats: Counter[str] = field(default_factory=Counter)
    """Trajectories by the format of their log."""
    tools: ByTool = field(default_factory=ByTool)
    """Calls by the kind of their tool: how many there are, failed, were repaired, and were left alone and why."""
    examples: tuple[EditExample, ...] = ()
    """A few repairs of each kind of tool."""
    edited: int = 0
    """Trajectories with a repair."""
    turns_before: int = 0
    turns_after: int = 0
    characters_before: int = 0
    characters_after: int = 0
    tokens_before: int = 0
    """Tokens of trajectories that have tokens; trajectories of a log have none."""
    tokens_after: int = 0
    failed_turns: int = 0
    """Failed turns in the logs."""
    repaired_turns: int = 0
    """Failed turns that a repair took out."""
    unsure_turns: int = 0
    """Turns with a result that could not be judged. They are never edited."""
    unanswered_turns: int = 0
    """Turns with calls that the log has no result of."""
    repeated_calls: int = 0
    """Turns whose calls had all been made before in one turn, with the same results."""
    abandoned: int = 0
    """Failures that the model gave up on."""
    edits: Counter[str] = field(default_factory=Counter)
    """Repairs by kind."""
    left_alone: Counter[str] = field(default_factory=Counter)
    """Failed turns that were not repaired, by reason."""
    judged: Counter[str] = field(default_factory=Counter)
    """Results by what their status was judged from: a field of the log, its text, or nothing."""
    without_calls: int = 0
    """Trajectories without a single call."""
    not_read: Counter[str] = field(default_factory=Counter)
    """Records that were passed through unchanged, by reason."""
    damaged: Counter[str] = field(default_factory=Counter)
    """Files of which only the beginning could be read, by what is wrong with them."""
    secrets: Secrets = field(default_factory=Secrets)
    """Secrets in the records by kind, whether they were redacted or not."""
    replayed: Counter[str] = field(default_factory=Counter)
    """Repaired trajectories for which a replay was asked, by verdict."""
    not_replayable: Counter[str] = field(default_factory=Counter)
    """Repaired trajectories that could not be replayed, by reason."""
    roc: Counter[str] = field(default_factory=Counter)
    """Trajectories that GRPO-RoC kept and dropped."""
    tables: Tables = field(default_factory=Tables)
    """Counts by tool name and by file, and the most frequent errors."""
    sft_rows: int = 0
    duplicate_rows: int = 0
    """Rows for supervised fine-tuning that were left out, because the same conversation is there already."""
    distill_rows: int = 0
    """Rows for self-distillation: one for each repair."""
    no_row: Counter[str] = field(default_factory=Counter)
    """Trajectories that were read and make no row, by what a row can't hold."""

    def add(self, before: Trajectory[Any], purified: PurifiedLog[Any]) -> None:
        """Count one trajectory."""
        after = purified.trajectory
        self.trajectories += 1
        log = log_of(before)
        self.formats[log.get("format", "store")] += 1
        if OPAQUE in log:
            self.not_read[log[OPAQUE]] += 1
            return
        self.without_calls += not any(turn.calls for turn in before.turns)
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
        self.repaired_turns += failed - left
        unjudged = [turn for turn in before.turns if turn.calls and not turn.results]
        self.unanswered_turns += sum(turn.observation is None for turn in unjudged)
        self.unsure_turns += sum(turn.observation is not None for turn in unjudged)
        self.tables.add(before, after)
        new = _new_edits(before, after)
        self.edited += bool(new)
        self.edits.update(edit.kind.value for _, edit in new)
        self._add_calls(before, purified, new)
        self.left_alone.update(each.reason.value for each in purified.left_alone)
        self.repeated_calls += repeated_calls(after)
        self.abandoned += abandoned(purified)

    def add_secrets(self, found: Counter[str], file: str, line: int | None) -> None:
        """Count the secrets of one record."""
        self.secrets += Secrets({kind: FoundSecrets(count, ((file, line),)) for kind, count in found.items()})

    def _add_calls(self, before: Trajectory[Any], purified: PurifiedLog[Any], new: list[tuple[int, Edit[Any]]]) -> None:
        """Count the calls of a trajectory by tool."""
        for turn in before.turns:
            for call in turn.calls:
                counts = self.tools[call.kind.value]
                counts.calls += 1
                counts.unsure += not turn.results and turn.observation is not None
                counts.no_result += not turn.results and turn.observation is None
            for tool in _failed(turn):
                self.tools[tool].failed += 1
        for index, edit in new:
            repaired = [tool for turn in edit.original for tool in _failed(turn)]
            for tool in repaired:
                self.tools[tool].repaired += 1
            # A unit has many repairs, and those after the first ones of a tool would be thrown away.
            if repaired and sum(each.tool == repaired[0] for each in self.examples) < OF_EACH_TOOL:
                shown = example(before, purified.trajectory.turns[index], edit, repaired[0])
                self.examples = first_of_each((*self.examples, shown))
        for each in purified.left_alone:
            for tool in _failed(purified.trajectory.turns[each.turn]):
                self.tools[tool].left_alone[each.reason.value] += 1

    def __add__(self, other: PurifySummary) -> PurifySummary:
        made = PurifySummary(
            **{each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)}
        )
        made.examples = first_of_each(made.examples)
        return made

    def to_json(self) -> dict[str, Any]:
        """Return it as one JSON object."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        plain = {name: dict(value) if isinstance(value, Counter) else value for name, value in values.items()}
        tools = {tool: counts.to_json() for tool, counts in self.tools.items()}
        examples = [each.to_json() for each in self.examples]
        objects = {"secrets": self.secrets.to_json(), "tables": self.tables.to_json()}
        return {**plain, "tools": tools, "examples": examples, **objects}

    @classmethod
    def from_json(cls, kept: dict[str, Any]) -> PurifySummary:
        """Return the summary that `to_json` wrote. Counts that only another version knows are left out."""
        made = cls()
        for name in kept.keys() & {each.name for each in fields(cls)}:
            value = kept[name]
            setattr(made, name, Counter(value) if isinstance(value, dict) else value)
        made.tables = Tables.from_json(kept.get("tables", {}))
        made.secrets = Secrets.from_json(kept.get("secrets", {}))
        counts = kept.get("tools", {}).items()
        made.tools = ByTool(
            {tool: ToolCounts(**{**each, "left_alone": Counter(each["left_alone"])}) for tool, each in counts}
        )
        made.examples = tuple(
            EditExample(**{**each, "before": tuple(each["before"]), "after": tuple(each["after"])})
            for each in kept.get("examples", ())
        )
        return made


def total(summaries: Iterable[PurifySummary]) -> PurifySummary:
    """Return the sum of the summaries."""
    return sum(summaries, PurifySummary())


def _new_edits(before: Trajectory[Any], after: Trajectory[Any]) -> list[tuple[int, Edit[Any]]]:
    # An edit that was there may have been noted more of; what it stands for is the very same.
    old = {id(edit.original) for _, edit in before.edits}
    return [(index, edit) for index, edit in after.edits if id(edit.original) not in old]


def _failed(turn: Turn[Any]) -> list[str]:
    """Return the kind of the tool of each failed call."""
    return [call.kind.value for call, result in zip(turn.calls, turn.results, strict=False) if result.failed]

"""Counts what was done to trajectories, so that the counts of units add up to those of a whole run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

from cleaner_rl.logs.cleaning import Cleaned, abandoned, repeated_calls
from cleaner_rl.logs.formats.base import log_of
from cleaner_rl.logs.records import OPAQUE
from cleaner_rl.purify import Unwarranted
from cleaner_rl.tools import CallKind, ToolCall, ToolResult, feedback
from cleaner_rl.trajectory import Edit, TokenSpan, Trajectory, Turn

EXAMPLES = 3
SHOWN = 300
"""Characters of a text that an example shows."""


class Refusal(NamedTuple):
    """How many failed turns were left alone for one reason, of one kind of call."""

    kind: CallKind
    reason: Unwarranted
    count: int


@dataclass(frozen=True, slots=True, order=True)
class EditExample:
    """A repair as an example for people; long texts are cut."""

    file: str
    line: int
    turn: int
    """Index of the failed turn in the log."""
    kind: str
    """Kind of the failed call."""
    failed: str
    """What the failed call ran."""
    error: str
    """The last line of what came back."""
    correction: str
    """What the correction runs."""


@dataclass(slots=True)
class PurifySummary:
    """Counts of what was done to trajectories; two summaries can be added."""

    trajectories: int = 0
    kept: int = 0
    """Trajectories in the store. A replay drops those whose text contradicts their results. Those that `--roc` drops
    are in the store too."""
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
    """Turns with a call whose outcome could not be judged. They are never edited."""
    repeated_calls: int = 0
    """Turns whose calls had all been made before in one turn, with the same results."""
    abandoned: int = 0
    """Failures that the model gave up on."""
    edits: Counter[str] = field(default_factory=Counter)
    """Repairs by kind."""
    left_alone: Counter[str] = field(default_factory=Counter)
    """Failed turns that were not repaired, by reason."""
    refused: Counter[str] = field(default_factory=Counter)
    """Those of them whose repair is not warranted, by kind of call and reason: `shell/bypass`. See `refusals`."""
    examples: list[EditExample] = field(default_factory=list)
    """The first repairs, three at most."""
    judged: Counter[str] = field(default_factory=Counter)
    """Results by what their status was judged from: a field of the log, its text, or nothing."""
    without_calls: int = 0
    """Trajectories without a single call."""
    not_read: Counter[str] = field(default_factory=Counter)
    """Records that were passed through unchanged, by reason."""
    damaged: Counter[str] = field(default_factory=Counter)
    """Files of which only the beginning could be read, by what is wrong with them."""
    replayed: Counter[str] = field(default_factory=Counter)
    """Trajectories that a replay checked, by verdict."""
    not_replayable: Counter[str] = field(default_factory=Counter)
    """Trajectories that could not be replayed, by reason."""
    roc: Counter[str] = field(default_factory=Counter)
    """Trajectories that GRPO-RoC kept and dropped."""
    sft_rows: int = 0
    no_row: Counter[str] = field(default_factory=Counter)
    """Trajectories that were read and make no SFT row, by what a row can't hold."""

    def add(self, before: Trajectory[Any], cleaned: Cleaned[Any]) -> None:
        """Count one trajectory."""
        after = cleaned.trajectory
        self.trajectories += 1
        log = log_of(before)
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
        self.unsure_turns += sum(bool(turn.calls) and not turn.results for turn in before.turns)
        new = _new_edits(before, after)
        self.edited += bool(new)
        self.edits.update(edit.kind.value for edit in new)
        self.left_alone.update(each.reason.value for each in cleaned.left_alone)
        for each in cleaned.left_alone:
            if isinstance(each.reason, Unwarranted):
                self.refused[f"{_failed_call(after.turns[each.turn])[0].kind}/{each.reason}"] += 1
        if new and len(self.examples) < EXAMPLES:
            self.examples = sorted([*self.examples, *_examples(after, new)])[:EXAMPLES]
        self.repeated_calls += repeated_calls(after)
        self.abandoned += abandoned(cleaned)

    @property
    def refusals(self) -> list[Refusal]:
        """How many repairs were not warranted, by kind of call and reason, the most frequent first."""
        parted = ((*name.split("/"), count) for name, count in self.refused.most_common())
        return [Refusal(CallKind(kind), Unwarranted(reason), count) for kind, reason, count in parted]

    def __add__(self, other: PurifySummary) -> PurifySummary:
        added = PurifySummary(
            **{each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)}
        )
        # Sorted, so that they don't depend on which unit was done first.
        added.examples = sorted(added.examples)[:EXAMPLES]
        return added

    def to_json(self) -> dict[str, Any]:
        """Return it as one JSON object."""
        values = ((each.name, getattr(self, each.name)) for each in fields(self))
        counts = {name: dict(value) if isinstance(value, Counter) else value for name, value in values}
        return {**counts, "examples": [asdict(each) for each in self.examples]}

    @classmethod
    def from_json(cls, kept: dict[str, Any]) -> PurifySummary:
        """Return the summary that `to_json` wrote. Counts that only another version knows are left out."""
        made = cls()
        for name in kept.keys() & {each.name for each in fields(cls)}:
            value = kept[name]
            setattr(made, name, Counter(value) if isinstance(value, dict) else value)
        made.examples = [EditExample(**each) for each in kept.get("examples", ())]
        return made


def total(summaries: Iterable[PurifySummary]) -> PurifySummary:
    """Return the sum of the summaries."""
    return sum(summaries, PurifySummary())


def _new_edits(before: Trajectory[Any], after: Trajectory[Any]) -> list[Edit[Any]]:
    # An edit that was there may have been noted more of; what it stands for is the very same.
    old = {id(edit.original) for _, edit in before.edits}
    return [edit for _, edit in after.edits if id(edit.original) not in old]


def _failed_call(turn: Turn[Any]) -> tuple[ToolCall, ToolResult]:
    """Return the first call of a failed turn that failed, and its result."""
    return next(pair for pair in zip(turn.calls, turn.results, strict=False) if pair[1].failed)


def _examples(after: Trajectory[Any], new: list[Edit[Any]]) -> Iterator[EditExample]:
    source = log_of(after).get("source", {})
    kept = {id(edit.original) for edit in new}
    position = 0
    for turn in after.turns:
        edit = turn.edit
        if edit is not None and id(edit.original) in kept:
            call, result = _failed_call(edit.original[0])
            lines = [line for line in feedback(result).splitlines() if line.strip()]
            yield EditExample(
                str(source.get("file") or ""),
                source.get("line") or 0,
                position,
                call.kind.value,
                call.code[:SHOWN],
                (lines or [""])[-1][:SHOWN],
                turn.code[:SHOWN],
            )
        position += 1 if edit is None else len(edit.original)

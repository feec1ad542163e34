"""A trajectory in a line: the numbers that lists are filtered and sorted by.

Each is what `cleaner_rl.trajectory` says of the trajectory, so a list and the page behind it can't disagree.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from cleaner_rl.tools import Status
from cleaner_rl.trajectory import (
    AnyTrajectory,
    RepairKind,
    TokenSpan,
    Turn,
    failures_repaired,
    first_attempt_tally,
    logprob_gap,
    residual_tally,
)
from cleaner_rl.view.detail import number
from cleaner_rl.view.titles import source_of, title_of

SNIPPET = 240
"""Characters of the prompt's end and of the last turn's end that a list shows and searches."""
STATUS_BITS = {status: 1 << place for place, status in enumerate(Status)}
LISTED = (
    "run", "phase", "step", "task", "rollout", "reward", "success", "stop_reason", "turns", "length", "tokens", "calls",
    "failed", "grafts", "replacements", "uncorrected", "similarity", "logprob_gap", "kept", "rescue_of",
    "rescue_turn", "statuses", "title", "source", "prompt", "answer",
)  # fmt: skip
"""The fields that a row of a list shows."""


@dataclass(frozen=True, slots=True)
class Summary:
    """One row of the index; the fields are its columns."""

    run: str
    phase: str
    step: int
    task: str
    rollout: int
    reward: float | None
    success: bool | None
    stop_reason: str | None
    turns: int
    length: int
    tokens: bool
    """Whether `length` counts tokens, and not characters."""
    calls: int
    failed: int
    """Of the final history."""
    first_calls: int
    first_failed: int
    """Before anybody helped."""
    failed_turns: int
    """Turns that the model failed in unaided, and how many of them a repair replaced."""
    repaired_turns: int
    grafts: int
    replacements: int
    uncorrected: int
    """Edits that keep the failure: a lookahead without a verified correction."""
    similarity: float | None
    """The least of its edits'."""
    logprob_gap: float | None
    """The mean of its edits'."""
    statuses: int
    """A bit for each status that a call had, also under an edit: see `STATUS_BITS`."""
    kept: bool | None
    """Whether resampling kept it; None if nobody said."""
    verdict: str | None
    """What resampling said of it, as JSON."""
    rescue_of: int | None
    """The rollout that it rescued; None if it is no rescue."""
    rescue_turn: int | None
    """The first failed turn of that rollout."""
    title: str
    """The first line of the task: see `titles`."""
    source: str | None
    """File and line of the log that it was read from; None if it is of no log, or nobody kept that."""
    prompt: str
    answer: str


def summarise(trajectory: AnyTrajectory) -> Summary:
    """Its line."""
    key, edits = trajectory.key, [edit for _, edit in trajectory.edits]
    residual, first = residual_tally(trajectory), first_attempt_tally(trajectory)
    kinds = [edit.kind for edit in edits]
    similarities = [edit.similarity for edit in edits if edit.similarity is not None]
    gaps = [lost for turn in trajectory.turns if (lost := logprob_gap(turn)) is not None]
    repaired = list(failures_repaired(trajectory))
    statuses = 0
    for turn in trajectory.turns:
        for each in with_originals(turn):
            for result in each.results:
                statuses |= STATUS_BITS[result.status]
    verdict = trajectory.info.verdict or {}
    kept = verdict.get("kept")
    rescue_of, rescue_turn = rescue(trajectory.info.rescued)
    return Summary(
        run=key.run,
        phase=key.phase,
        step=key.step,
        task=key.task,
        rollout=key.rollout,
        reward=trajectory.reward,
        success=trajectory.success,
        stop_reason=trajectory.stop_reason,
        turns=len(trajectory.turns),
        length=len(trajectory),
        tokens=isinstance(trajectory.prompt, TokenSpan),
        calls=residual.calls,
        failed=residual.failed,
        first_calls=first.calls,
        first_failed=first.failed,
        failed_turns=len(repaired),
        repaired_turns=sum(repaired),
        grafts=kinds.count(RepairKind.GRAFT),
        replacements=kinds.count(RepairKind.REPLACE),
        uncorrected=kinds.count(RepairKind.NONE),
        similarity=min(similarities, default=None),
        logprob_gap=fmean(gaps) if gaps else None,
        statuses=statuses,
        kept=kept if isinstance(kept, bool) else None,
        verdict=json.dumps(dict(verdict)) if verdict else None,
        rescue_of=rescue_of,
        rescue_turn=rescue_turn,
        title=title_of(trajectory.prompt.text, {"messages": trajectory.info.messages}),
        source=source_of({"log": trajectory.info.log}),
        prompt=trajectory.prompt.text[-SNIPPET:],
        answer=trajectory.turns[-1].text[-SNIPPET:] if trajectory.turns else "",
    )


def rescue(said: object) -> tuple[int | None, int | None]:
    """Return the rollout that a rescue began with, and its failed turn, from what the info says of it."""
    told = said if isinstance(said, Mapping) else {}
    return _place(told.get("of")), _place(told.get("turn"))


def _place(value: object) -> int | None:
    """A number that a column of the index holds."""
    return value if isinstance(value, int) and 0 <= value < 2**63 else None


def as_row(line: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a line as the page wants them: numbers that JSON has, statuses by their names."""
    row = {name: number(value) if isinstance(value, float) else value for name, value in line.items()}
    row["statuses"] = [status.value for status, bit in STATUS_BITS.items() if line["statuses"] & bit]
    return row


def with_originals(turn: Turn[Any]) -> Iterator[Turn[Any]]:
    """A turn, and all that its edit took away."""
    yield turn
    for original in turn.edit.original if turn.edit is not None else ():
        yield from with_originals(original)

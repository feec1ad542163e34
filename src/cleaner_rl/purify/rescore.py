"""Log-probs under the clean context, and how far they are from those of the lookahead.

A grafted token was sampled after an error; it stands in a history without one. `rescore` asks for its log-prob there
and keeps the sampled one beside it. Their difference, the gap, is a metric of each edit, a threshold above which an
edit can be refused, and the material for an importance weight.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from cleaner_rl.purify.live import Gate
from cleaner_rl.trajectory import (
    Ids,
    Mode,
    Owner,
    Placed,
    Scores,
    TokenSpan,
    Trajectory,
    Turn,
    gap,
    undo,
)

Score: TypeAlias = Callable[[Ids, Ids], Awaitable[Scores]]
"""(prefix, suffix) → the suffix's log-probs after the prefix, at temperature 1 and top-p 1."""


@dataclass(slots=True)
class _Run:
    """Moved spans with nothing sampled between them that has not moved: one request."""

    start: int
    end: int = 0
    spans: list[tuple[int, Placed[TokenSpan]]] = field(default_factory=list)
    """Each with the position of its first token."""


async def rescore(trajectory: Trajectory[TokenSpan], score: Score) -> Trajectory[TokenSpan]:
    """Give every moved span its log-probs where it stands now, asking for the shortest suffixes that can have changed.

    After live repairs that is each repaired turn's own new tokens; after hindsight, all from the first edit on. The
    requests run side by side; if one fails, the others are cancelled and its error goes through.
    """
    runs = list(_runs(trajectory))
    if not runs:
        return trajectory
    import asyncio  # whoever awaits this has loaded it; whoever purifies logs needn't

    ids = trajectory.ids()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_ask(score, ids, run)) for run in runs]
    turns = list(trajectory.turns)
    for run, task in zip(runs, tasks, strict=True):
        scores = task.result()
        for start, placed in run.spans:
            part = scores.logprobs[start - run.start : start - run.start + len(placed.span)]
            span = replace(placed.span, rescored=Scores(part, scores.version))
            turn = turns[placed.turn]
            is_action = placed.owner is Owner.ACTION
            turns[placed.turn] = replace(turn, action=span) if is_action else replace(turn, reasoning=span)
    return replace(trajectory, turns=tuple(turns))


def gap_gate(score: Score, max_gap: float) -> Gate[TokenSpan]:
    """For `repair`: re-score a correction before it is committed, and refuse it above this gap."""

    async def gate(candidate: Trajectory[TokenSpan]) -> Trajectory[TokenSpan] | None:
        scored = await rescore(candidate, score)
        return None if _is_wide(scored.turns[-1], max_gap) else scored

    return gate


async def refuse_wide_gaps(trajectory: Trajectory[TokenSpan], score: Score, max_gap: float) -> Trajectory[TokenSpan]:
    """Re-score after hindsight, undoing edits above this gap, the first one first, because it moves all later ones."""
    while True:
        trajectory = await rescore(trajectory, score)
        wide = (
            index
            for index, edit in trajectory.edits
            if edit.mode is Mode.HINDSIGHT and _is_wide(trajectory.turns[index], max_gap)
        )
        first = next(wide, None)
        if first is None:
            return trajectory
        trajectory = undo(trajectory, first)


def _is_wide(turn: Turn[TokenSpan], max_gap: float) -> bool:
    width = gap(turn)
    if width is None:
        raise ValueError("a gap needs the log-probs that the correction was sampled with; have the engine return them")
    return width > max_gap


async def _ask(score: Score, ids_T: Ids, run: _Run) -> Scores:  # noqa: N803 - the shape is part of the name
    scores = await score(ids_T[: run.start], ids_T[run.start : run.end])
    if len(scores.logprobs) != run.end - run.start:
        raise ValueError(f"asked for the log-probs of {run.end - run.start} tokens, got {len(scores.logprobs)}")
    return scores


def _runs(trajectory: Trajectory[TokenSpan]) -> Iterator[_Run]:
    run: _Run | None = None
    position = 0
    for placed in trajectory.placed():
        end = position + len(placed.span)
        if placed.owner.sampled and len(placed.span):
            if placed.moved and placed.span.rescored is None:
                run = run or _Run(position)
                run.end = end
                run.spans.append((position, placed))
            elif run is not None:
                yield run
                run = None
        position = end
    if run is not None:
        yield run

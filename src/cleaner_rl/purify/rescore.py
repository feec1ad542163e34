"""Re-scores repaired trajectories: asks for log-probs in the repaired context and keeps the sampled ones.

A grafted token was sampled after an error and is now in a history without one. `rescore` asks for its log-prob there
and keeps the sampled one beside it. Their difference, the gap, is a metric of each edit. An edit can be refused above
a threshold, and an importance weight can be computed from it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from cleaner_rl.purify.saar import Gate
from cleaner_rl.trajectory import (
    Ids,
    Owner,
    Placed,
    RepairMode,
    Scores,
    TokenSpan,
    Trajectory,
    Turn,
    logprob_gap,
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
    """Give every span that was moved the log-probs that it has in its new context.

    Only suffixes that can have changed are requested. After SAAR these are the new tokens of each repaired turn; after
    hindsight, everything from the first edit on. Requests run side by side. If one fails, the others are cancelled and
    its error is raised.

    Args:
        trajectory: A repaired trajectory with tokens.
        score: Returns the log-probs of a suffix after a prefix, at temperature 1 and top-p 1.

    Examples:
        >>> import asyncio
        >>> from dataclasses import replace
        >>> import numpy as np
        >>> from cleaner_rl.purify import RepairConfig, hindsight, rescore
        >>> from cleaner_rl.tools import Status, ToolResult, ToolSet, call_format, python_tool
        >>> from cleaner_rl.trajectory import Scores, Trajectory, Vocabulary, read_tokens, token_span
        >>> letters = Vocabulary([bytes([byte]) for byte in range(256)])
        >>> def turn(code, status):
        ...     text = f"I add.\\n```python\\n{code}\\n```".encode()
        ...     sampled = token_span("", text, [-1.0] * len(text))
        ...     said = read_tokens(sampled, letters, call_format("fenced"), ToolSet(python_tool()))
        ...     return replace(said, results=(ToolResult(status),), observation=token_span("", b""))
        >>> turns = turn("print(1 + y)", Status.ERROR), turn("print(1 + 1)", Status.OK)
        >>> repaired = hindsight(Trajectory(token_span("?", b"?"), turns), RepairConfig()).trajectory
        >>> async def score(prefix, suffix):
        ...     return Scores(np.full(len(suffix), -2.0), version=1)
        >>> action = asyncio.run(rescore(repaired, score)).turns[0].action
        >>> float(action.sampled.logprobs[0]), float(action.rescored.logprobs[0])
        (-1.0, -2.0)
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


def gap_gate(score: Score, max_logprob_gap: float) -> Gate[TokenSpan]:
    """Return a gate for `repair` that re-scores a correction before it is committed, and refuses it above this gap."""

    async def gate(candidate: Trajectory[TokenSpan]) -> Trajectory[TokenSpan] | None:
        scored = await rescore(candidate, score)
        return None if _is_wide(scored.turns[-1], max_logprob_gap) else scored

    return gate


async def refuse_wide_gaps(
    trajectory: Trajectory[TokenSpan], score: Score, max_logprob_gap: float
) -> Trajectory[TokenSpan]:
    """Re-score after hindsight, and undo edits above this gap. The first one is undone first: it moves later ones."""
    while True:
        trajectory = await rescore(trajectory, score)
        wide = (
            index
            for index, edit in trajectory.edits
            if edit.mode is RepairMode.HINDSIGHT and _is_wide(trajectory.turns[index], max_logprob_gap)
        )
        first = next(wide, None)
        if first is None:
            return trajectory
        trajectory = undo(trajectory, first)


def _is_wide(turn: Turn[TokenSpan], max_logprob_gap: float) -> bool:
    width = logprob_gap(turn)
    if width is None:
        raise ValueError("a gap needs the log-probs that the correction was sampled with; have the engine return them")
    return width > max_logprob_gap


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

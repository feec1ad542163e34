"""From a rollout to a trajectory that can be trained on or scored: grade it, settle it, re-score it.

What is a fault stays one, and becomes one if the grader has a fault: no reward, no success, nothing to learn. A rollout
that ran out of wall time is not graded either: how far it came was the machine's doing too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

from cleaner_rl.purify import ReplayFaultError, prove, settle
from cleaner_rl.purify.replay import ExecuteCall
from cleaner_rl.rollout.model import Model
from cleaner_rl.rollout.policy import EngineFaultError
from cleaner_rl.rollout.settings import Purifier
from cleaner_rl.rollout.toolbox import Toolbox
from cleaner_rl.tasks import Grade, Grader, Outcome, RewardScale, Task, grade
from cleaner_rl.tools import ToolCall, ToolResult
from cleaner_rl.trajectory import Ending, Key, Mode, Seeds, Trajectory
from cleaner_rl.trajectory.spans import S

UNGRADED = (Ending.FAULT, Ending.TIME_LIMIT, Ending.DROPPED)


async def finish(
    trajectory: Trajectory[S],
    task: Task,
    *,
    model: Model[S],
    toolbox: Toolbox,
    graders: Mapping[str, Grader],
    seeds: Seeds,
    scale: RewardScale = RewardScale.SIGNED,
    purifier: Purifier | None = None,
) -> Trajectory[S]:
    """The rollout, graded, and purified where that happens afterwards."""
    if trajectory.ending in UNGRADED:
        return trajectory
    verdict = await grade(task, answer(trajectory, model), graders)
    graded = _with_grade(trajectory, verdict, scale)
    if purifier is None or not graded.usable or not purifier.applies(seeds, trajectory.key.step):
        return graded
    try:
        settled = settle(graded, purifier.policy, purifier.mode)
        if purifier.mode is Mode.HINDSIGHT and toolbox.stateful and settled.edits:
            proof = await prove(settled, lambda: calls_of(toolbox, trajectory.key))
            settled = replace(proof.trajectory, extra={**graded.extra, "replay": proof.replay.verdict})
        return await model.rescored(settled, purifier.max_gap) if purifier.rescore else settled
    except (EngineFaultError, ReplayFaultError) as error:
        return _faulty(trajectory, str(error))


def answer(trajectory: Trajectory[S], model: Model[S]) -> str:
    """What a grader reads: the last turn, unless it calls a tool; a rollout without a last word has no answer."""
    if not trajectory.turns or trajectory.turns[-1].calls:
        return ""
    return model.answer(trajectory.turns[-1])


def _with_grade(trajectory: Trajectory[S], verdict: Grade, scale: RewardScale) -> Trajectory[S]:
    if verdict.outcome is Outcome.FAULT:
        return _faulty(trajectory, f"grader: {verdict.reason}")
    found = {"answer": verdict.extracted, "grade": verdict.reason}
    return replace(
        trajectory,
        reward=verdict.reward(scale),
        success=verdict.outcome is Outcome.RIGHT,
        extra={**trajectory.extra, **found},
    )


def _faulty(trajectory: Trajectory[S], fault: str) -> Trajectory[S]:
    return replace(trajectory, ending=Ending.FAULT, extra={**trajectory.extra, "fault": fault})


@asynccontextmanager
async def calls_of(toolbox: Toolbox, key: Key) -> AsyncIterator[ExecuteCall]:
    """Runs single calls in a fresh environment, as `purify.replay` wants it."""
    async with toolbox.open(key) as hands:

        async def execute(call: ToolCall) -> ToolResult:
            return (await hands.run([call]))[0]

        yield execute

"""From a rollout to a trajectory that can be trained on or scored: grade it, settle it, re-score it.

The reward is that of the rollout before any repair (`rewards`).

What is a fault stays one, and becomes one if the grader has a fault: no reward, no success, nothing to learn. A rollout
that ran out of wall time is not graded either: how far it came was the machine's doing too.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

from cleaner_rl.purify import ExecuteCall, ReplayFaultError, purify, verify_by_replay
from cleaner_rl.rollout.engine import EngineFaultError
from cleaner_rl.rollout.model import Model
from cleaner_rl.rollout.rewards import ANSWER, ANSWER_ALONE
from cleaner_rl.rollout.settings import Purifier
from cleaner_rl.rollout.tool_env import ToolEnv, prepared_for
from cleaner_rl.tasks import AnyGrader, Outcome, RewardScale, Task, grade, without_thinking
from cleaner_rl.tools import ToolCall, ToolResult
from cleaner_rl.trajectory import Key, RepairMode, S, Seeds, StopReason, Trajectory, before_repairs

TAIL = 100
"""Characters at the end of a context, among which the marker of thinking is."""
LAST_WORD = re.compile(r"\S+\s*\Z")
UNGRADED = (StopReason.FAULT, StopReason.TIME_LIMIT, StopReason.DROPPED)


async def grade_and_purify(
    trajectory: Trajectory[S],
    task: Task,
    *,
    model: Model[S],
    tool_env: ToolEnv,
    graders: Mapping[str, AnyGrader],
    seeds: Seeds,
    scale: RewardScale = RewardScale.SIGNED,
    weights: Mapping[str, float] = ANSWER_ALONE,
    purifier: Purifier | None = None,
) -> Trajectory[S]:
    """Grade the rollout, and purify it if that happens after grading."""
    graded = await grade_rollout(trajectory, task, model=model, graders=graders, scale=scale, weights=weights)
    tools = prepared_for(task, tool_env)
    purified = await purify_graded(graded, model=model, tool_env=tools, seeds=seeds, purifier=purifier)
    # What broke after the grade leaves no grade: the rollout can't be trained on.
    return _faulty(trajectory, purified.info.fault) if purified.stop_reason is StopReason.FAULT else purified


async def grade_rollout(
    trajectory: Trajectory[S],
    task: Task,
    *,
    model: Model[S],
    graders: Mapping[str, AnyGrader],
    scale: RewardScale,
    weights: Mapping[str, float],
) -> Trajectory[S]:
    """Grade the rollout before its repairs: by its task's grader, which says whether the task is solved, then by all
    others that have a weight. A fault of a grader, which `tasks.grade` asks three times, becomes its stop reason."""
    if trajectory.stop_reason in UNGRADED:
        return trajectory
    checked = trajectory.info.checked
    text = answer(trajectory, model) if checked is None else checked
    raw = before_repairs(trajectory)
    verdict = await grade(task, text, graders, rollout=raw)
    grades = {ANSWER: verdict}
    info = replace(trajectory.info, answer=verdict.extracted, grade=verdict.reason)
    raw = replace(raw, success=verdict.outcome is Outcome.RIGHT, info=info)
    for name in weights:
        if name not in grades and verdict.outcome is not Outcome.FAULT:
            grades[name] = verdict = await grade(task, text, graders, name=name, rollout=raw)
    terms: dict[str, float] = {}
    for name, each in grades.items():
        value = each.reward(scale)
        if value is None:
            return _faulty(trajectory, f"grader: {each.reason}")
        terms[name] = value
    several = {name: terms[name] for name in weights} if weights != ANSWER_ALONE else None
    reward = sum(weight * terms[name] for name, weight in weights.items())
    return replace(trajectory, reward=reward, success=raw.success, info=replace(info, terms=several))


async def purify_graded(
    graded: Trajectory[S], *, model: Model[S], tool_env: ToolEnv, seeds: Seeds, purifier: Purifier | None
) -> Trajectory[S]:
    """Purify a graded rollout where that happens after grading; a fault of tool or engine becomes its stop reason."""
    ended = graded.stop_reason in UNGRADED
    if ended or purifier is None or not graded.usable or not purifier.applies(seeds, graded.key.step):
        return graded
    try:
        settled = purify(graded, purifier.config, purifier.mode)
        if purifier.mode is RepairMode.HINDSIGHT and tool_env.stateful and settled.edits:
            proof = await verify_by_replay(settled, lambda: calls_of(tool_env, graded.key))
            settled = replace(proof.trajectory, info=replace(graded.info, replay=str(proof.replay.verdict)))
        return await model.rescored(settled, purifier.config.max_logprob_gap) if purifier.rescore else settled
    except (EngineFaultError, ReplayFaultError) as error:
        return _faulty(graded, str(error))


def answer(trajectory: Trajectory[S], model: Model[S]) -> str:
    """Return the text that a grader reads: the last turn, or nothing if that turn calls a tool.

    Some chat templates begin the model's turn with the marker of its thinking. It is part of what the grader reads:
    without it, thinking that was cut off would look like an answer.
    """
    if not trajectory.turns or trajectory.turns[-1].calls:
        return ""
    *before, last = trajectory.turns
    context = before[-1].observation if before else trajectory.prompt
    ended = LAST_WORD.search(context.text[-TAIL:]) if context is not None else None
    begun = ended[0] if ended is not None and without_thinking(ended[0]) is None else ""
    return begun + model.answer(last)


def _faulty(trajectory: Trajectory[S], fault: str) -> Trajectory[S]:
    return replace(trajectory, stop_reason=StopReason.FAULT, info=replace(trajectory.info, fault=fault))


@asynccontextmanager
async def calls_of(tool_env: ToolEnv, key: Key) -> AsyncIterator[ExecuteCall]:
    """Open a fresh environment that runs single calls, as `purify.replay` needs it."""
    async with tool_env.open(key) as tool_session:

        async def execute(call: ToolCall) -> ToolResult:
            return (await tool_session.run([call]))[0]

        yield execute

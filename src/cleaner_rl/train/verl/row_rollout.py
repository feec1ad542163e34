"""One rollout of one of verl's rows, or the rescue of its group. Knows no verl.

It is named, seeded, graded, and purified by what it is for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cleaner_rl.rollout import Engine, RescueTry, RolloutRunner, Sampling
from cleaner_rl.tasks import Task, from_verl
from cleaner_rl.train.recipe.settings import Recipe
from cleaner_rl.train.rows import Graded
from cleaner_rl.train.verl.custom_reward import graded_by
from cleaner_rl.train.verl.runner import for_phase
from cleaner_rl.trajectory import Key, Phase, TokenSpan

PHASE = "cleaner_phase"
ROUND = "cleaner_round"
"""Columns that our manager adds to a batch: what it is for, and how often this step has seen the task before."""


async def roll(
    shared: RolloutRunner[TokenSpan],
    recipe: Recipe,
    engine: Engine,
    row: Mapping[str, Any],
    sampling: Mapping[str, Any],
    window: int,
) -> Graded:
    """Return the finished trajectory of a row; `sampling` is verl's, which is another in evaluation."""
    task, runner = _task_and_runner(shared, recipe, engine, row, sampling, window)
    number, phase = int(row["session_id"]), Phase(row[PHASE])
    return await runner.run_one(task, Key(recipe.name, int(row["global_steps"]), task.id, number, phase))


async def rescue(
    shared: RolloutRunner[TokenSpan],
    recipe: Recipe,
    engine: Engine,
    row: Mapping[str, Any],
    sampling: Mapping[str, Any],
    window: int,
    group: Sequence[Graded],
) -> RescueTry[TokenSpan] | None:
    """Try to rescue a row's group, whose rollouts have ended; None if nothing was tried."""
    task, runner = _task_and_runner(shared, recipe, engine, row, sampling, window)
    return await runner.try_rescue(task, group)


def rescues(recipe: Recipe, row: Mapping[str, Any]) -> bool:
    """Return whether the group of a row gets a rescue if all of its rollouts are wrong."""
    return recipe.rescue is not None and row[PHASE] == Phase.TRAINING


def _task_and_runner(
    shared: RolloutRunner[TokenSpan],
    recipe: Recipe,
    engine: Engine,
    row: Mapping[str, Any],
    sampling: Mapping[str, Any],
    window: int,
) -> tuple[Task, RolloutRunner[TokenSpan]]:
    phase = Phase(row[PHASE])
    # A later look at a task draws anew; an evaluation draws alike at every step.
    drawn = (int(row["global_steps"]), int(row[ROUND])) if phase is Phase.TRAINING else ()
    return graded_by(recipe, from_verl(row)), for_phase(
        shared, recipe, engine, phase, drawn, _sampling(sampling), window
    )


def _sampling(parameters: Mapping[str, Any]) -> Sampling:
    top_k = int(parameters["top_k"])
    return Sampling(float(parameters["temperature"]), float(parameters["top_p"]), None if top_k < 1 else top_k)

"""One rollout of one of verl's rows: named, seeded, purified by what it is for, and graded. Knows no verl."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cleaner_rl.purify import Phase
from cleaner_rl.rollout import Engine, RolloutRunner, Sampling
from cleaner_rl.tasks import from_verl
from cleaner_rl.train.recipe.settings import Recipe
from cleaner_rl.train.rows import Graded
from cleaner_rl.train.verl.runner import for_phase
from cleaner_rl.trajectory import Key, TokenSpan

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
    phase = Phase(row[PHASE])
    task = from_verl(row)
    step, number = int(row["global_steps"]), int(row["session_id"])
    # A later look at a task draws anew; an evaluation draws alike at every step.
    drawn = (step, int(row[ROUND])) if phase is Phase.TRAINING else ()
    runner = for_phase(shared, recipe, engine, phase, drawn, _sampling(sampling), window)
    return await runner.run_one(task, Key(recipe.name, step, task.id, number, phase))


def _sampling(parameters: Mapping[str, Any]) -> Sampling:
    top_k = int(parameters["top_k"])
    return Sampling(float(parameters["temperature"]), float(parameters["top_p"]), None if top_k < 1 else top_k)

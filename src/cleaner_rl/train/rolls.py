"""One rollout of one of verl's rows: named, seeded, purified by what it is for, and graded. Knows no verl."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cleaner_rl.purify import Phase
from cleaner_rl.rollout import Policy, Sampling, finish, rollout
from cleaner_rl.tasks import from_verl
from cleaner_rl.train.outputs import Graded
from cleaner_rl.train.workshop import Workshop
from cleaner_rl.trajectory import Key, Seeds, derive_seed, raw

PHASE = "cleaner_phase"
ROUND = "cleaner_round"
"""Columns that our manager adds to a batch: what it is for, and how often this step has seen the task before."""


async def roll(
    shop: Workshop, policy: Policy, row: Mapping[str, Any], sampling: Mapping[str, Any], window: int
) -> Graded:
    """The finished trajectory of a row; `sampling` is verl's, which is another in evaluation."""
    recipe, phase = shop.recipe, Phase(row[PHASE])
    task = from_verl(row)
    step, number = int(row["global_steps"]), int(row["session_id"])
    run = recipe.name if phase is Phase.TRAINING else f"{recipe.name}-evaluation"
    key = Key(run, step, task.id, number)
    # A later look at a task draws anew; an evaluation draws alike at every step.
    drawn = (step, int(row[ROUND])) if phase is Phase.TRAINING else ()
    seeds = Seeds(derive_seed(recipe.seed, phase, *drawn), task.id, number)
    model = shop.model(policy, _sampling(sampling), window)
    purifier, toolbox = shop.purifier(phase, seeds, step), shop.toolbox
    trajectory = await rollout(
        task,
        key,
        prompt=shop.prompt,
        model=model,
        toolbox=toolbox,
        seeds=seeds,
        budget=shop.budget(phase),
        purifier=purifier,
    )
    # Counted before anything is cut: attempts of lookaheads, and what edits take away, were sampled too.
    trajectory = replace(trajectory, extra={**trajectory.extra, "sampled": sampled_tokens(trajectory)})
    return await finish(
        trajectory,
        task,
        model=model,
        toolbox=toolbox,
        graders=shop.graders,
        seeds=seeds,
        scale=recipe.tasks.reward,
        purifier=purifier,
    )


def sampled_tokens(trajectory: Graded) -> int:
    """All that the model sampled for a trajectory."""
    turns = [each.turn for each in raw(trajectory)]
    return sum(len(span) for turn in turns for span in (turn.reasoning, turn.action) if span is not None)


def _sampling(parameters: Mapping[str, Any]) -> Sampling:
    top_k = int(parameters["top_k"])
    return Sampling(float(parameters["temperature"]), float(parameters["top_p"]), None if top_k < 1 else top_k)

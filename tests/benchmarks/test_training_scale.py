"""The arithmetic of the papers' runs, as the docs tell it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.lab.results import RESULTS
from benchmarks.training_scale import DAY, RECIPES, RUNS, days, table, worked
from cleaner_rl.train import read_recipe

SCALE = Path("docs/scale.md")


def test_the_docs_have_the_table_that_the_command_prints() -> None:
    assert table() in SCALE.read_text()


def test_cleaner_s_days_come_out_and_rstar2_s_take_more() -> None:
    over = [run.days / days(run, read_recipe(RECIPES / f"{run.recipe}.yaml")) for run in RUNS]
    assert all(0.75 < each < 1.5 for each in over[:3])
    assert over[3] > 3


def test_a_group_that_is_drawn_again_costs_its_sampling_again_and_no_update() -> None:
    run = RUNS[0]
    recipe = read_recipe(RECIPES / f"{run.recipe}.yaml")
    step = worked(run, recipe, run.steps[0][1], recipe.budget.response_tokens)
    more = days(run, recipe, 0.5) - days(run, recipe)
    assert more == pytest.approx(run.steps[0][0] * step.sampling / DAY)


def test_the_docs_say_how_much_more_dynamic_sampling_sampled_in_the_lab() -> None:
    def tokens(method: str, last: int) -> float:
        steps = json.loads((RESULTS / f"drift-{method}-0.json").read_text())["figures"]["training"]
        return sum(float(steps[str(step)]["sampled_tokens"]) for step in range(1, last + 1))

    early, all_of_it = (tokens("grpo-dynamic", last) / tokens("grpo", last) for last in (20, 60))
    assert f"{early:.1f} times the tokens in the first 20 steps, {all_of_it:.1f} times over all 60" in SCALE.read_text()


def test_a_step_lasts_at_least_as_long_as_its_longest_rollout() -> None:
    run = RUNS[-1]
    recipe = read_recipe(RECIPES / f"{run.recipe}.yaml")
    short, long = (worked(run, recipe, 1_000, longest) for longest in (1_000, 8_192))
    assert long.sampling > 5 * short.sampling
    assert long.updating == short.updating

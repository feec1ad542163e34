"""The arithmetic of the papers' runs, as the docs tell it."""

from __future__ import annotations

from pathlib import Path

from benchmarks.training_scale import RECIPES, RUNS, days, table, worked
from cleaner_rl.train import read_recipe


def test_the_docs_have_the_table_that_the_command_prints() -> None:
    assert table() in Path("docs/scale.md").read_text()


def test_cleaner_s_days_come_out_and_rstar2_s_take_more() -> None:
    over = [run.days / days(run, read_recipe(RECIPES / f"{run.recipe}.yaml")) for run in RUNS]
    assert all(0.75 < each < 1.5 for each in over[:3])
    assert over[3] > 3


def test_a_step_lasts_at_least_as_long_as_its_longest_rollout() -> None:
    run = RUNS[-1]
    recipe = read_recipe(RECIPES / f"{run.recipe}.yaml")
    short, long = (worked(run, recipe, 1_000, longest) for longest in (1_000, 8_192))
    assert long.sampling > 5 * short.sampling
    assert long.updating == short.updating

"""Arms, their recipes, and the order in which they run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.lab.arms import ARMS, CONTROLS, HALF, REQUIRED, STEPS, TUNING
from benchmarks.lab.order import SEEDS, order
from benchmarks.lab.recipes import SHARED, Run, recipe_of
from benchmarks.lab.results import RESULTS, kept, read_all
from benchmarks.lab.summary import tuned_rate
from benchmarks.lab.worlds import COLD_STARTS, world
from cleaner_rl.train import Method, Recipe, overrides


def recipe(arm: str, seed: int = 0, regime: str = "drift") -> Recipe:
    return recipe_of(Run(regime, arm, seed), world(regime, seed), 3e-4, STEPS)


@pytest.mark.parametrize("arm", ARMS)
def test_every_arm_is_a_recipe(arm: str) -> None:
    made = recipe(arm)
    assert overrides(made, world("drift", 0).folder)
    assert made.budget.evaluation_turns in (0, recipe("dapo").budget.turns)
    assert (made.run.steps, made.name) == (STEPS, f"drift-{arm}-0")


def test_required_arms_differ_in_method_and_its_settings_alone() -> None:
    dapo = recipe("dapo")
    for arm in REQUIRED:
        made = recipe(arm.name)
        assert replace(made, name=dapo.name, method=Method.DAPO, purify=dapo.purify, roc=dapo.roc) == dapo
    assert {recipe(arm.name).method for arm in REQUIRED} == set(Method) - {Method.HINDSIGHT_ROC, Method.NO_TOOLS}


def test_at_least_one_negative_is_kept() -> None:
    assert recipe("roc").roc.min_negative == recipe("saar-roc").roc.min_negative == 1
    assert recipe("roc").sampled == 2 * recipe("dapo").sampled


def test_no_two_arms_are_the_same() -> None:
    # Tuning repeats DAPO at its own rate: two runs of one arm with one seed.
    made = [replace(recipe(arm.name), name="") for arm in (*REQUIRED, *CONTROLS)]
    assert all(one != other for index, one in enumerate(made) for other in made[:index])
    assert replace(recipe("dapo-lr-3e-04"), name="") == made[0]


def test_arms_of_a_seed_begin_with_the_same_model_and_seeds_with_others() -> None:
    assert {recipe(arm.name, 1).model.path for arm in REQUIRED} == {str(world("drift", 1).folder / "model")}
    assert len({recipe("dapo", seed).model.path for seed in SEEDS}) == min(COLD_STARTS, len(SEEDS)) >= 2
    assert len({recipe("dapo", seed).seed for seed in SEEDS}) == len(SEEDS) >= 3


def test_the_headline_comes_first_and_everything_once() -> None:
    runs = order()
    assert len(set(runs)) == len(runs)
    assert {run.arm for run in runs[: len(TUNING)]} == {arm.name for arm in TUNING}
    headline = runs[len(TUNING) : len(TUNING) + len(REQUIRED) * len(SEEDS)]
    assert set(headline) == {Run("drift", arm.name, seed) for arm in REQUIRED for seed in SEEDS}
    assert {Run("slips", arm.name, seed) for arm in REQUIRED for seed in SEEDS} <= set(runs)
    assert {run.arm for run in runs} == set(ARMS)


def test_schedules_turn_at_the_middle() -> None:
    from cleaner_rl.purify import Schedule

    late, early = (
        recipe("saar-late").purify.policy().probability,
        recipe("saar-then-hindsight").purify.policy().probability,
    )
    assert isinstance(late, Schedule)
    assert isinstance(early, Schedule)
    assert (late.at(1), late.at(HALF), late.at(HALF + 1), late.at(STEPS)) == (0.0, 0.0, 1.0, 1.0)
    assert (early.at(1), early.at(HALF), early.at(STEPS)) == (1.0, 0.0, 0.0)


def test_a_key_that_recipes_have_since_then_leaves_finished_runs_finished() -> None:
    rate = tuned_rate(RESULTS) or float(SHARED["update"]["lr"])
    finished = [each.run for each in read_all() if each.finished]
    assert finished
    for run in finished:
        made = recipe_of(run, world(run.regime, run.seed), rate, run.steps)
        assert kept(run, made), run
        assert not kept(run, replace(made, seed=made.seed + 1)), run


def test_all_models_of_a_run_stay_to_be_measured() -> None:
    assert overrides(recipe("dapo"), world("drift", 0).folder)["trainer.max_actor_ckpt_to_keep"] is None

"""Arms, their recipes, and the order in which they run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.lab.environments import COLD_STARTS, toy_environment
from benchmarks.lab.methods import ABLATIONS, HALF, METHODS, REQUIRED, STEPS, TUNING
from benchmarks.lab.order import SEEDS, order
from benchmarks.lab.recipes import RATE, SHARED, Run, recipe_of
from benchmarks.lab.results import RESULTS, kept, read_all
from benchmarks.lab.summary import tuned_rate
from cleaner_rl.train import Method, Recipe
from cleaner_rl.train.verl.overrides import overrides


def recipe(method: str, seed: int = 0, regime: str = "drift") -> Recipe:
    return recipe_of(Run(regime, method, seed), toy_environment(regime, seed), 3e-4, STEPS)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_a_recipe(method: str) -> None:
    made = recipe(method)
    assert overrides(made, toy_environment("drift", 0).folder)
    assert made.budget.evaluation_turns in (0, recipe("grpo").budget.turns)
    assert (made.run.steps, made.name) == (STEPS, f"drift-{method}-0")


def test_required_methods_differ_in_method_and_its_settings_alone() -> None:
    grpo = recipe("grpo")
    for method in REQUIRED:
        made = recipe(method.name)
        assert replace(made, name=grpo.name, method=Method.GRPO, purify=grpo.purify, roc=grpo.roc) == grpo
    assert {recipe(method.name).method for method in REQUIRED} == {
        Method.GRPO,
        Method.ROC,
        Method.SAAR,
        Method.HINDSIGHT,
        Method.SAAR_ROC,
    }


def test_at_least_one_negative_is_kept() -> None:
    assert recipe("roc").roc.min_negative == recipe("saar-roc").roc.min_negative == 1
    assert recipe("roc").sampled == 2 * recipe("grpo").sampled


def test_no_two_methods_are_the_same() -> None:
    # Tuning repeats GRPO at its own rate: two runs of one method with one seed.
    made = [replace(recipe(method.name), name="") for method in (*REQUIRED, *ABLATIONS) if not method.retired]
    assert all(one != other for index, one in enumerate(made) for other in made[:index])
    assert replace(recipe("grpo-lr-3e-04"), name="") == made[0]


def test_methods_of_a_seed_begin_with_the_same_model_and_seeds_with_others() -> None:
    assert {recipe(method.name, 1).model.path for method in REQUIRED} == {
        str(toy_environment("drift", 1).folder / "model")
    }
    assert len({recipe("grpo", seed).model.path for seed in SEEDS}) == min(COLD_STARTS, len(SEEDS)) >= 2
    assert len({recipe("grpo", seed).seed for seed in SEEDS}) == len(SEEDS) >= 3


def test_the_headline_comes_first_and_everything_once() -> None:
    runs = order()
    assert len(set(runs)) == len(runs)
    assert {run.method for run in runs[: len(TUNING)]} == {method.name for method in TUNING}
    headline = runs[len(TUNING) : len(TUNING) + len(REQUIRED) * len(SEEDS)]
    assert set(headline) == {Run("drift", method.name, seed) for method in REQUIRED for seed in SEEDS}
    assert {Run("slips", method.name, seed) for method in REQUIRED for seed in SEEDS} <= set(runs)
    assert {run.method for run in runs} == {name for name, method in METHODS.items() if not method.retired}


def test_schedules_turn_at_the_middle() -> None:
    from cleaner_rl.purify import Schedule

    late, early = (
        recipe("saar-late").purify.config().probability,
        recipe("saar-then-hindsight").purify.config().probability,
    )
    assert isinstance(late, Schedule)
    assert isinstance(early, Schedule)
    assert (late.at(1), late.at(HALF), late.at(HALF + 1), late.at(STEPS)) == (0.0, 0.0, 1.0, 1.0)
    assert (early.at(1), early.at(HALF), early.at(STEPS)) == (1.0, 0.0, 0.0)


def test_a_key_that_recipes_have_since_then_leaves_finished_runs_finished() -> None:
    rate = tuned_rate(RESULTS) or float(SHARED["verl"][RATE])
    finished = [each.run for each in read_all() if each.finished]
    assert finished
    for run in finished:
        made = recipe_of(run, toy_environment(run.regime, run.seed), rate, run.steps)
        assert kept(run, made), run
        assert not kept(run, replace(made, seed=made.seed + 1)), run


def test_all_models_of_a_run_stay_to_be_measured() -> None:
    assert overrides(recipe("grpo"), toy_environment("drift", 0).folder)["trainer.max_actor_ckpt_to_keep"] is None

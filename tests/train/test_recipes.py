"""The recipes that come with the project."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cleaner_rl.cli import main
from cleaner_rl.purify import PurifyScope
from cleaner_rl.train import Method, read_recipe, run_folder
from cleaner_rl.train.launch.start import COLD_START, parts
from cleaner_rl.train.verl.overrides import environment, number, overrides
from cleaner_rl.train.verl.settings import devices_of

FOLDER = Path(__file__).parents[2] / "recipes"
RECIPES = sorted(FOLDER.glob("*.yaml"))
COMPOSED = json.loads((Path(__file__).parent / "composed.json").read_text())


@pytest.fixture(autouse=True)
def _world(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOY", "/toy/drift")
    monkeypatch.setenv("DAPO", "/models/dapo")


@pytest.mark.parametrize("file", RECIPES, ids=lambda file: file.stem)
def test_a_recipe_reads_and_becomes_settings(file: Path) -> None:
    recipe = read_recipe(file)
    assert recipe.name == file.stem
    loggers = overrides(recipe, run_folder(recipe))["trainer.logger"]
    assert loggers == ["console", "file"], "others want an account, and a job without one would fail"
    shown = CliRunner().invoke(main, ["train", str(file), "--dry-run", "--json"])
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.stdout) == json.loads(json.dumps(parts(recipe)))


@pytest.mark.parametrize("file", [each for each in RECIPES if each.stem in COMPOSED], ids=lambda file: file.stem)
def test_a_recipe_gives_verl_what_it_did_when_its_settings_had_names_of_ours(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`composed.json` was written then: what all parts of all runs have, and what each part has of its own."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    recipe = read_recipe(file, ["run.folder=/runs"])
    found: dict[str, Any] = {**parts(recipe), "environment": environment(recipe)}
    if COLD_START in found:
        del found[COLD_START]["trainer.default_local_dir"]  # its name is a hash of the settings
    for part, own in COMPOSED[file.stem].items():
        shared = {} if part in (COLD_START, "environment") else COMPOSED["all"]
        assert json.loads(json.dumps(found.pop(part))) == {**shared, **own}
    assert not found


def test_the_smoke_test_is_short_and_touches_every_part() -> None:
    recipe = read_recipe(FOLDER / "smoke-gpu.yaml")
    devices, settings = devices_of(recipe), overrides(recipe, run_folder(recipe))
    assert (recipe.run.steps, devices.count, devices.kind) == (5, 1, "gpu")
    assert recipe.method.saar
    assert recipe.method.resamples
    assert 0 < number(settings, "trainer.save_freq") <= recipe.run.steps
    assert 0 < number(settings, "trainer.test_freq") <= recipe.run.steps
    # Thirty tasks, each once an epoch.
    assert number(settings, "trainer.total_epochs") * (30 // recipe.batch.prompts) >= recipe.run.steps
    assert "Not tested on a GPU" in (FOLDER / "smoke-gpu.yaml").read_text()


@pytest.mark.parametrize("method", ["dapo", "no-tools"])
@pytest.mark.parametrize("size", ["4b", "7b"])
def test_a_baseline_differs_in_the_method_alone(size: str, method: str) -> None:
    ours, baseline = read_recipe(FOLDER / f"saar-{size}.yaml"), read_recipe(FOLDER / f"{method}-{size}.yaml")
    assert baseline.method == method
    assert replace(baseline, name=ours.name, method=Method.SAAR) == ours


def test_hindsight_differs_in_the_method_and_in_leaving_failed_rollouts_raw() -> None:
    ours, paper = read_recipe(FOLDER / "hindsight-4b.yaml"), read_recipe(FOLDER / "saar-4b.yaml")
    assert (ours.method, ours.purify.scope) == (Method.HINDSIGHT, PurifyScope.SUCCESSFUL)
    raw = replace(ours.purify, scope=paper.purify.scope)
    assert replace(ours, name=paper.name, method=paper.method, purify=raw) == paper


def test_two_views_differ_in_the_method_alone() -> None:
    ours = read_recipe(FOLDER / "two-views-4b.yaml", ["method=saar"])
    assert replace(ours, name="saar-4b") == read_recipe(FOLDER / "saar-4b.yaml")


@pytest.mark.parametrize("card", ["24gb", "80gb"])
def test_a_recipe_for_one_card_has_the_recommended_method(card: str) -> None:
    ours, whole = (read_recipe(FOLDER / f"{name}.yaml") for name in (f"two-views-4b-{card}", "two-views-4b"))
    assert devices_of(ours).count == 1
    assert (ours.method, ours.model, ours.tasks) == (whole.method, whole.model, whole.tasks)
    assert (ours.purify, ours.rescue) == (whole.purify, whole.rescue)


def test_the_papers_figures_are_the_recipes() -> None:
    small, large = read_recipe(FOLDER / "saar-4b.yaml"), read_recipe(FOLDER / "saar-7b.yaml")
    composed = [overrides(recipe, run_folder(recipe)) for recipe in (small, large)]
    assert [settings["actor_rollout_ref.actor.optim.lr"] for settings in composed] == [2e-6, 1e-6]
    assert (small.purify.probability, large.purify.probability) == (1.0, 0.7)
    for recipe, settings in zip((small, large), composed, strict=True):
        assert (recipe.batch.prompts, recipe.batch.mini_batch, recipe.batch.rollouts) == (128, 32, 16)
        assert (recipe.budget.prompt_tokens, recipe.budget.response_tokens, recipe.budget.turns) == (2560, 20480, 16)
        assert [settings[f"actor_rollout_ref.actor.clip_ratio_{end}"] for end in ("low", "high", "c")] == [
            0.2,
            0.28,
            10.0,
        ]
        assert (recipe.purify.attempts, recipe.purify.threshold) == (3, 0.5)
        drawn = "actor_rollout_ref.rollout.val_kwargs"
        assert (settings[f"{drawn}.temperature"], settings[f"{drawn}.top_p"]) == (1.0, 0.6)


@pytest.mark.parametrize(
    ("name", "positions"),
    [("saar-4b", 262_144), ("saar-7b", 32_768), ("rstar2-14b", 32_768), ("smoke-gpu", 32_768)],
)
def test_a_rollout_fits_into_the_positions_of_its_model(name: str, positions: int) -> None:
    """As the models' own configurations on the hub have them."""
    recipe = read_recipe(FOLDER / f"{name}.yaml")
    longest = max((stage.response_tokens for stage in recipe.stages), default=recipe.budget.response_tokens)
    assert replace(recipe, budget=replace(recipe.budget, response_tokens=longest)).window <= positions


def test_stages_raise_the_length_and_follow_each_other() -> None:
    recipe = read_recipe(FOLDER / "rstar2-14b.yaml")
    _, first, second, third = parts(recipe).values()
    lengths = [each["data.max_response_length"] for each in (first, second, third)]
    assert lengths == [8_192, 12_288, 12_288]
    assert first["actor_rollout_ref.model.path"] == "<the model of the cold start>"
    assert third["actor_rollout_ref.model.path"] == "<the model of rstar2-14b-12k>"
    assert sum(stage.steps for stage in recipe.stages) == 510

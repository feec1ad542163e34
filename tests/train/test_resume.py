from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cleaner_rl.train import Method, Recipe, run_folder, to_recipe, train
from cleaner_rl.train.launch.cold_start import cold_start_folder
from cleaner_rl.train.launch.resume import changes, check_folder
from cleaner_rl.train.recipe.settings import RecipeError, part_folders
from cleaner_rl.train.recipe.stages import stage_recipe
from cleaner_rl.train.verl.plan import RunPlan
from cleaner_rl.train.verl.settings import LEARNING_RATE, MICRO_BATCH
from tests.train.recipes import values


def recipe(folder: Path, **others: Any) -> Recipe:
    return to_recipe(values(**{"run": {"folder": str(folder)}, **others}))


def begin(one: Recipe) -> None:
    RunPlan(one, ("http://127.0.0.1:1",), run_folder(one)).write()


def test_a_baseline_doesnt_go_on_from_the_run_that_it_is_compared_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cleaner_rl.train.launch.start.find_spec", lambda _: object())
    begin(recipe(tmp_path))
    before = (tmp_path / "example" / "plan.json").read_bytes()
    with pytest.raises(RecipeError, match=r'method was "saar\+roc", is "dapo"\), .* --set name='):
        train(recipe(tmp_path, method="dapo"))
    assert (tmp_path / "example" / "plan.json").read_bytes() == before
    check_folder(recipe(tmp_path, method="dapo", name="other"))
    (tmp_path / "example" / "plan.json").unlink()
    check_folder(recipe(tmp_path, method="dapo"))


def test_a_run_from_before_a_setting_existed_goes_on_while_the_setting_has_its_default(tmp_path: Path) -> None:
    begin(recipe(tmp_path))
    file = tmp_path / "example" / "plan.json"
    plan = json.loads(file.read_text())
    del plan["recipe"]["purify"]["max_logprob_gap"], plan["recipe"]["roc"]
    file.write_text(json.dumps(plan))

    check_folder(recipe(tmp_path))
    with pytest.raises(RecipeError, match=r"purify\.max_logprob_gap was null, is 0\.5\)"):
        check_folder(recipe(tmp_path, purify={"max_logprob_gap": 0.5}))


def test_a_plan_with_a_setting_that_isnt_one_any_more_is_named_and_kept(tmp_path: Path) -> None:
    begin(recipe(tmp_path))
    file = tmp_path / "example" / "plan.json"
    plan = json.loads(file.read_text())
    plan["recipe"]["purify"]["which"] = "all"
    file.write_text(json.dumps(plan))

    with pytest.raises(RecipeError, match=r"plan\.json .*there is no setting 'purify\.which'"):
        check_folder(recipe(tmp_path))
    assert json.loads(file.read_text()) == plan


def test_what_isnt_learnt_from_may_change_on_the_way(tmp_path: Path) -> None:
    begin(recipe(tmp_path, verl={"data.val_max_samples": 256, "+trainer.new": 1}))
    check_folder(
        recipe(
            tmp_path,
            run={"folder": str(tmp_path), "steps": 7},
            sandbox={"addresses": ["http://a:1"]},
            verl={
                "data": {"val_max_samples": 256},
                "trainer": {"val_before_train": False, "nnodes": 2, "n_gpus_per_node": 4, "logger": ["file"]},
                "actor_rollout_ref.rollout": {"agent.num_workers": 3, "val_kwargs.n": 4},
                MICRO_BATCH: 2,
            },
        )
    )


def test_each_difference_is_named() -> None:
    one = to_recipe(values())
    other = to_recipe(values(verl={LEARNING_RATE: 2e-6, "algorithm.gamma": 0.9}, tasks={"train": ["b.parquet"]}))
    evaluated = to_recipe(values(verl={LEARNING_RATE: 1e-6, "actor_rollout_ref.rollout.val_kwargs.top_p": 0.6}))
    assert changes(one, evaluated) == ["verl.actor_rollout_ref.rollout.val_kwargs.top_p was 1.0, is 0.6"]
    assert changes(one, other) == [
        'tasks.train was ["train.parquet"], is ["b.parquet"]',
        f"verl.{LEARNING_RATE} was 1e-06, is 2e-06",
        "verl.algorithm.gamma was null, is 0.9",
    ]


def test_stages_and_a_cold_start_go_on_from_what_they_made_themselves(tmp_path: Path) -> None:
    stages = [{"name": "a", "steps": 1}, {"name": "b", "steps": 1, "max_pass_rate": 0.9}]
    whole = recipe(tmp_path, stages=stages, cold_start={"data.train_files": ["sft.parquet"]})
    first, second = part_folders(whole)
    cold = str(cold_start_folder(whole) / "global_step_3")
    begin(stage_recipe(whole, whole.stages[0], cold, whole.tasks.train))
    later = stage_recipe(whole, whole.stages[1], str(first / "checkpoints"), [str(second / "train-0.parquet")])
    begin(later)
    check_folder(whole)
    with pytest.raises(RecipeError, match="method was"):
        check_folder(replace(whole, method=Method.DAPO))
    with pytest.raises(RecipeError, match=r"model.path was .*cold-start"):
        check_folder(replace(whole, model=replace(whole.model, path="another/model")))


def test_a_plan_of_another_version_is_named(tmp_path: Path) -> None:
    begin(recipe(tmp_path))
    plan = tmp_path / "example" / "plan.json"
    plan.write_text(plan.read_text().replace('"seed"', '"sead"'))
    with pytest.raises(RecipeError, match=r"plan.json .*'sead'"):
        check_folder(recipe(tmp_path))


def test_another_number_of_devices_is_refused_where_there_is_a_checkpoint(tmp_path: Path) -> None:
    two = {"trainer.n_gpus_per_node": 2}
    begin(recipe(tmp_path, verl=two))
    check_folder(recipe(tmp_path, verl={"trainer.n_gpus_per_node": 4}))
    checkpoints = tmp_path / "example" / "checkpoints"
    actor = checkpoints / "global_step_10" / "actor"
    actor.mkdir(parents=True)
    (checkpoints / "latest_checkpointed_iteration.txt").write_text("10")
    for rank in range(2):
        (actor / f"model_world_size_2_rank_{rank}.pt").touch()
    check_folder(recipe(tmp_path, verl=two))
    with pytest.raises(RecipeError, match=r"step 10 in .* was saved on 2 devices, and verl can't load it on 4"):
        check_folder(recipe(tmp_path, verl={"trainer.n_gpus_per_node": 4}))

"""Each place at which the plugin touches verl: a new release fails here, in words, before anything else does."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

import cleaner_rl.train.seams as seams
from cleaner_rl.train import as_arguments, parts, read_recipe

RECIPES = sorted((Path(__file__).parents[3] / "recipes").glob("*.yaml"))


def test_every_seam_is_where_and_as_it_was() -> None:
    assert seams.broken_seams() == []


def test_the_seams_are_those_of_the_version_that_was_tested() -> None:
    assert version("verl") == seams.VERL_VERSION


def test_a_seam_that_moved_is_named() -> None:
    moved = {"verl.utils.distributed:initialize_global_process_group_ray": "timeout_second rendezvous"}
    gone = {"verl.utils.distributed:start_everything": ""}

    problems = seams._problems(moved | gone, lambda found: found.__code__.co_varnames)

    assert problems[0] == "verl.utils.distributed:initialize_global_process_group_ray lacks rendezvous"
    assert problems[1].startswith("verl.utils.distributed:start_everything isn't there")


@pytest.mark.parametrize("file", RECIPES, ids=lambda file: file.stem)
def test_verl_knows_every_setting_of_every_recipe(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAUGHT", "/worlds/drift")
    monkeypatch.setenv("DAPO", "/models/dapo")
    for name, values in parts(read_recipe(file)).items():
        trainer = "sft_trainer_engine" if name == "cold start" else "ppo_trainer"
        assert seams.check(as_arguments(values), trainer) == []


def test_a_setting_that_verl_doesnt_know_is_named() -> None:
    (problem,) = seams.check(["trainer.balance_bach=true"])
    assert "balance_bach" in problem


def test_settings_that_dont_go_together_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    def problems(*settings: str) -> list[str]:
        (values,) = parts(read_recipe(RECIPES[0].parent / "cleaner-4b.yaml", settings)).values()
        return seams.check(as_arguments(values))

    assert problems("update.kl=0.001") == []
    (problem,) = problems("update.kl=0.001", "verl.actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=null")
    assert "actor_rollout_ref.ref.log_prob_micro_batch_size" in problem
    assert not capsys.readouterr().out

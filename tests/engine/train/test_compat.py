"""Each part of verl that the plugin relies on: a new release that changes one fails here first, with its name."""

from __future__ import annotations

import importlib
import inspect
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from verl.utils.tracking import Tracking

import cleaner_rl.train.verl.compat as hooks
from cleaner_rl.train import as_arguments, read_recipe
from cleaner_rl.train.launch.start import parts
from cleaner_rl.train.launch.verl_checks import LOGGERS
from cleaner_rl.train.verl.source import definition, parameters

RECIPES = sorted((Path(__file__).parents[3] / "recipes").glob("*.yaml"))


def test_every_hook_of_verl_is_as_expected() -> None:
    assert hooks.broken_hooks() == []


def test_what_is_read_of_a_hook_is_what_python_sees() -> None:
    for place in hooks.SIGNATURES:
        module, _, path = place.partition(":")
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
        assert parameters(definition(place)) - {"cls"} == {*inspect.signature(found).parameters}, place


def test_the_hooks_are_those_of_the_version_that_was_tested() -> None:
    assert version("verl") == hooks.VERL_VERSION


def test_a_hook_that_moved_is_named() -> None:
    moved = {"verl.utils.distributed:initialize_global_process_group_ray": "timeout_second rendezvous"}
    gone = {"verl.utils.distributed:start_everything": ""}

    problems = hooks._problems(moved | gone, parameters)

    assert problems[0] == "verl.utils.distributed:initialize_global_process_group_ray lacks rendezvous"
    assert problems[1].startswith("verl.utils.distributed:start_everything is missing")


@pytest.mark.parametrize("file", RECIPES, ids=lambda file: file.stem)
def test_verl_knows_every_setting_of_every_recipe(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOY", "/toy/drift")
    monkeypatch.setenv("DAPO", "/models/dapo")
    for name, values in parts(read_recipe(file)).items():
        trainer = "sft_trainer_engine" if name == "cold start" else "ppo_trainer"
        assert hooks.refusals(as_arguments(values), trainer) == []


def test_a_setting_that_verl_doesnt_know_is_named() -> None:
    (problem,) = hooks.refusals(["trainer.balance_bach=true"])
    assert "balance_bach" in problem


def test_settings_that_dont_go_together_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    def problems(*settings: str) -> list[str]:
        (values,) = parts(read_recipe(RECIPES[0].parent / "saar-4b.yaml", settings)).values()
        return hooks.refusals(as_arguments(values))

    assert problems("verl.actor_rollout_ref.actor.kl_loss_coef=0.001") == []
    (problem,) = problems(
        "verl.actor_rollout_ref.actor.kl_loss_coef=0.001",
        "verl.actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=null",
    )
    assert "actor_rollout_ref.ref.log_prob_micro_batch_size" in problem
    assert not capsys.readouterr().out


def test_the_loggers_that_a_recipe_may_name_are_verls() -> None:
    assert set(LOGGERS) == set(Tracking.supported_backend)

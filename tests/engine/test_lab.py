"""The lab's parts that need torch or verl; a run of it is in `train/test_training.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.lab.environments import ToyEnvironment, toy_environment
from benchmarks.lab.larger_budget import TURNS, with_larger_budget
from benchmarks.lab.methods import METHODS, STEPS
from benchmarks.lab.recipes import Run, recipe_of
from benchmarks.lab.recovery import recovery
from benchmarks.toy.model import Lessons
from benchmarks.toy.regimes import REGIMES
from cleaner_rl.tasks import read_verl
from cleaner_rl.train import as_arguments
from cleaner_rl.train.verl.compat import refusals
from cleaner_rl.train.verl.overrides import overrides
from tests.toy_site import site

__all__ = ["site"]

LESSONS = Lessons(demonstrations=48, epochs=1, batch=16, width=64, layers=1, heads=2, vocabulary=512, apart=True)


@pytest.mark.timeout(120)
def test_verl_knows_the_settings_of_every_arm() -> None:
    for method in METHODS:
        recipe = recipe_of(Run("drift", method, 0), toy_environment("drift", 0), 2e-4, STEPS)
        assert refusals(as_arguments(overrides(recipe, Path("run")))) == []


@pytest.mark.timeout(180)
def test_a_world_is_made_and_its_model_measured_after_failures_and_with_room(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLEANER_TOY", str(site))
    made = ToyEnvironment(REGIMES["drift"], LESSONS, evaluated=12, failing=6)

    made.make()
    found = recovery(made.folder / "model", made)

    assert len(list(read_verl(made.held_out))) == 12
    assert found["rollouts"] == 6
    assert 0 <= found["right"] <= found["next_call_works"] <= 1
    roomy = with_larger_budget(made.folder / "model", made)
    assert roomy["rollouts"] == 12
    assert 0 <= roomy["errors"] <= roomy["calls"] <= TURNS

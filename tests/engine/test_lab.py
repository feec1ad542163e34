"""The lab's parts that need torch or verl; a run of it is in `train/test_training.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.lab.arms import ARMS, STEPS
from benchmarks.lab.recipes import Run, recipe_of
from benchmarks.lab.recovery import recovery
from benchmarks.lab.room import TURNS, with_room
from benchmarks.lab.worlds import World, world
from benchmarks.taught.pupil import Lessons
from benchmarks.taught.regimes import REGIMES
from cleaner_rl.tasks import read_verl
from cleaner_rl.train import as_arguments, overrides
from cleaner_rl.train.seams import check
from tests.taught_site import site

__all__ = ["site"]

LESSONS = Lessons(demonstrations=48, epochs=1, batch=16, width=64, layers=1, heads=2, vocabulary=512, apart=True)


@pytest.mark.timeout(120)
def test_verl_knows_the_settings_of_every_arm() -> None:
    for arm in ARMS:
        recipe = recipe_of(Run("drift", arm, 0), world("drift", 0), 2e-4, STEPS)
        assert check(as_arguments(overrides(recipe, Path("run")))) == []


@pytest.mark.timeout(180)
def test_a_world_is_made_and_its_model_measured_after_failures_and_with_room(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLEANER_TAUGHT", str(site))
    made = World(REGIMES["drift"], LESSONS, evaluated=12, failing=6)

    made.make()
    found = recovery(made.folder / "model", made)

    assert len(list(read_verl(made.held_out))) == 12
    assert found["rollouts"] == 6
    assert 0 <= found["right"] <= found["next_call_works"] <= 1
    roomy = with_room(made.folder / "model", made)
    assert roomy["rollouts"] == 12
    assert 0 <= roomy["errors"] <= roomy["calls"] <= TURNS

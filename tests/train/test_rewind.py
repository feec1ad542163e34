from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from cleaner_rl.evaluate.training_report import evaluations
from cleaner_rl.train.launch import start
from cleaner_rl.train.launch.rewind import checkpointed, set_aside
from cleaner_rl.train.recipe.load import to_recipe
from cleaner_rl.train.recipe.stages import pass_rates
from cleaner_rl.train.record import ABANDONED
from cleaner_rl.trajectory import Key, Phase, StopReason
from cleaner_rl.trajectory.store import ParquetWriter, read
from tests.builders import answered, trajectory
from tests.train.recipes import values


def drawn(folder: Path, steps: range, success: bool) -> None:
    """What a run leaves of some steps, each with an evaluation."""
    with ParquetWriter(folder / "trajectories") as writer, (folder / "metrics.jsonl").open("a") as metrics:
        for step in steps:
            for phase in Phase:
                one = trajectory(answered(), success=success)
                key = Key("example", step, "t", 0, phase)
                writer.write(replace(one, key=key, reward=float(success), stop_reason=StopReason.ANSWERED))
            metrics.write(json.dumps({"run": "example", "step": step, "metrics": {"reward": float(success)}}) + "\n")


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A run that was broken off at step 5, with a checkpoint of step 3."""
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("3")
    drawn(tmp_path, range(1, 6), success=False)
    with (tmp_path / "metrics.jsonl").open("a") as metrics:
        metrics.write('{"run": "exam')
    return tmp_path


def steps(store: Path, phase: Phase) -> list[int]:
    return [each.key.step for each in read(store, phase)]


def test_a_run_that_goes_on_leaves_no_trace_of_the_steps_that_it_does_again(broken: Path) -> None:
    assert checkpointed(broken) == 3
    set_aside(broken, evaluates=True)
    drawn(broken, range(4, 6), success=True)

    store = broken / "trajectories"
    assert steps(store, Phase.TRAINING) == [1, 2, 3, 4, 5]
    assert steps(store, Phase.EVALUATION) == [1, 2, 4, 5]  # that of the checkpoint is made when it goes on
    assert pass_rates(store)["t"].passed == 2
    assert {step: rates["t"].share for step, (rates, _) in evaluations(store).items()} == {1: 0, 2: 0, 4: 1, 5: 1}
    lines = [json.loads(line) for line in (broken / "metrics.jsonl").read_text().splitlines()]
    assert [(line["step"], line["metrics"]["reward"]) for line in lines] == [(1, 0), (2, 0), (3, 0), (4, 1), (5, 1)]


@pytest.mark.parametrize(("held_out", "left"), [(["held.parquet"], [1, 2]), ([], [1, 2, 3])])
def test_a_start_sets_aside_what_it_will_do_again(
    broken: Path, monkeypatch: pytest.MonkeyPatch, held_out: list[str], left: list[int]
) -> None:
    recipe = to_recipe(values(tasks={"train": ["train.parquet"], "held_out": held_out}))
    monkeypatch.setattr(start, "sandbox", lambda *_: nullcontext([]))
    monkeypatch.setattr(start, "_run", lambda *_: None)
    start._train_once(recipe, broken, lambda _: None, lambda: None)
    assert steps(broken / "trajectories", Phase.TRAINING) == [1, 2, 3]
    assert steps(broken / "trajectories", Phase.EVALUATION) == left


def test_an_evaluation_that_isnt_made_again_stays(broken: Path) -> None:
    set_aside(broken, evaluates=False)
    assert steps(broken / "trajectories", Phase.EVALUATION) == [1, 2, 3]


def test_what_is_set_aside_is_kept_however_often(broken: Path) -> None:
    for _ in range(2):
        set_aside(broken, evaluates=False)
        drawn(broken, range(4, 6), success=True)
    set_aside(broken, evaluates=False)
    aside = broken / ABANDONED
    assert steps(aside / "trajectories", Phase.TRAINING) == [4] * 3 + [5] * 3
    assert len((aside / "metrics.jsonl").read_text().splitlines()) == 7  # one of them broken off


def test_a_run_without_a_checkpoint_begins_with_nothing(tmp_path: Path) -> None:
    set_aside(tmp_path, evaluates=True)
    drawn(tmp_path, range(3), success=True)
    set_aside(tmp_path, evaluates=True)
    assert not list((tmp_path / "trajectories").glob("run=example/*/step=[12]"))
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == 1  # of step 0

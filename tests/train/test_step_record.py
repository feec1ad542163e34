from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cleaner_rl.resample import group_of, select
from cleaner_rl.rollout import RescueTry
from cleaner_rl.train.recipe.load import to_recipe
from cleaner_rl.train.record import ABANDONED, figures_of
from cleaner_rl.train.record.step import (
    HELD,
    PATIENCE,
    NothingToLearnError,
    StepRecord,
    TooManyFaultsError,
)
from cleaner_rl.train.rows import Graded, RowGroup
from cleaner_rl.trajectory import Key, RolloutInfo, StopReason
from cleaner_rl.trajectory.store import read
from tests.builders import answered, failed, trajectory, worked
from tests.train.recipes import values

RECIPE = to_recipe(
    values(
        name="run",
        method="roc",
        batch={"prompts": 2, "mini_batch": 1, "rollouts": 2},
        roc={"sample": 4, "min_positive": 1, "min_negative": 1},
    )
)


def rollout(number: int, success: bool, failures: int = 0) -> Graded:
    one = trajectory(*[failed() for _ in range(failures)], worked(), answered(), success=success)
    key = Key("run", 3, "task", number)
    info = RolloutInfo(sampled=10 + number)
    return replace(one, key=key, reward=1.0 if success else -1.0, stop_reason=StopReason.ANSWERED, info=info)


ROWS = [rollout(0, True, 2), rollout(1, True), rollout(2, False, 1), rollout(3, False)]


def recorded(folder: Path) -> StepRecord:
    record = StepRecord(folder, RECIPE.step_config())
    config = RECIPE.group_config()
    record.selected(ROWS, RowGroup((), select(group_of(ROWS), config, 1), {}), config, absent=0)
    return record


def test_all_that_was_drawn_is_stored_with_what_became_of_it(tmp_path: Path) -> None:
    recorded(tmp_path).finish(3, "train")

    stored = sorted(read(tmp_path / "trajectories"), key=lambda each: each.key.rollout)
    kept = [bool(each.info.verdict["kept"]) for each in stored]  # type: ignore[index]
    assert len(stored) == 4
    assert kept[:2] == [False, True]  # of two successes, the clean one
    assert sum(kept) == 2


def test_a_step_is_one_line_beside_the_store(tmp_path: Path) -> None:
    metrics = recorded(tmp_path).finish(3, "train")

    line = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert (line["run"], line["step"]) == ("run", 3)
    assert metrics == {f"cleaner/{name}": value for name, value in line["metrics"].items()}
    assert line["metrics"]["accuracy"] == 0.5
    assert line["metrics"]["roc/accuracy_kept"] == 0.5


def test_s20_residual_errors_are_counted_by_call() -> None:
    figures = figures_of(ROWS)
    assert figures["errors_per_trajectory"] == 3 / 4
    assert figures["first_attempt_errors_per_trajectory"] == 3 / 4
    assert figures["first_attempt_success"] == pytest.approx(4 / 7)


def test_groups_that_were_given_up_are_counted_and_stored_and_in_no_mean(tmp_path: Path) -> None:
    record = recorded(tmp_path)
    record.evicted("zero_variance", [replace(rollout(9, True), key=Key("run", 3, "easy", 0))], absent=0)

    metrics = record.finish(3, "train")

    (easy,) = [each for each in read(tmp_path / "trajectories") if each.key.task == "easy"]
    assert easy.info.verdict["why"] == "the group was refilled: all of its rollouts solved the task, or none did"  # type: ignore[index]
    assert metrics["cleaner/groups/zero_variance"] == 1
    assert metrics["cleaner/accuracy"] == 0.5


def test_an_evaluation_of_faults_stops_a_run_too(tmp_path: Path) -> None:
    record = StepRecord(tmp_path, RECIPE.step_config())
    record.evaluated(ROWS, absent=1)  # one in five is bearable
    with pytest.raises(TooManyFaultsError, match="100% of an evaluation's rollouts"):
        record.evaluated([], absent=5)
    assert len(list(read(tmp_path / ABANDONED))) == len(ROWS)  # to look at, and in no report
    assert not (tmp_path / "trajectories").exists()


def test_faults_stop_a_run_once_there_are_enough_groups_to_say_so(tmp_path: Path) -> None:
    record = StepRecord(tmp_path, RECIPE.step_config())
    record.evicted("too_small", [], absent=4)
    record.check()  # one of two groups: too early
    record.evicted("too_small", [], absent=4)

    with pytest.raises(TooManyFaultsError, match="100% of this step's rollouts"):
        record.check()


def test_what_faults_left_is_stored_before_they_stop_a_run(tmp_path: Path) -> None:
    record = recorded(tmp_path)
    record.evicted("too_small", ROWS[:1], absent=3)

    with pytest.raises(TooManyFaultsError):
        record.finish(3, "train")
    assert len(list(read(tmp_path / "trajectories"))) == len(ROWS) + 1


def test_a_model_that_solves_nothing_ends_the_run_with_the_reason(tmp_path: Path) -> None:
    record = recorded(tmp_path)
    for number in range(PATIENCE * RECIPE.batch.prompts):
        record.check()
        record.evicted("zero_variance", [rollout(0, number == 0), rollout(1, number == 0)], absent=0)

    with pytest.raises(NothingToLearnError, match=r"in 1 .* in 19 "):
        record.check()
    assert len(list(read(tmp_path / "trajectories"))) == len(ROWS) + 2 * 20


def test_groups_that_are_given_up_without_an_end_dont_fill_the_memory(tmp_path: Path) -> None:
    record = StepRecord(tmp_path, RECIPE.step_config())
    for _ in range(HELD // 4):
        record.evicted("surplus", ROWS, absent=0)
    assert len(list(read(tmp_path / "trajectories"))) == HELD


def test_a_bearable_share_of_faults_is_reported(tmp_path: Path) -> None:
    record = recorded(tmp_path)
    record.evicted("too_small", [], absent=1)

    metrics = record.finish(3, "train")

    assert metrics["cleaner/faults"] == 1
    assert metrics["cleaner/fault_share"] == 1 / 8
    assert metrics["cleaner/groups/too_small"] == 1


def test_zero_variance_groups_are_counted_whether_they_are_trained_on_or_refilled(tmp_path: Path) -> None:
    record = recorded(tmp_path)
    config, wrong = RECIPE.group_config(), [rollout(0, False), rollout(1, False)]
    record.selected(
        wrong, RowGroup((), select(group_of(wrong), config, 1, dynamic_sampling=False), {}), config, absent=0
    )
    record.evicted("zero_variance", wrong, absent=0)
    assert record.finish(3, "train")["cleaner/zero_variance_groups"] == 2


def test_a_step_begins_with_nothing(tmp_path: Path) -> None:
    record = recorded(tmp_path)
    record.finish(3, "train")
    assert record.fault_share() == 0
    assert record.finish(4, "train")["cleaner/faults"] == 0


def test_a_step_that_comes_in_several_batches_is_one(tmp_path: Path) -> None:
    record = recorded(tmp_path)
    record.evicted("too_small", [], absent=1)
    assert record.finish(3, "train", whole=False) == {}
    config = RECIPE.group_config()
    record.selected(ROWS[:3], RowGroup((), select(group_of(ROWS[:3]), config, 1), {}), config, absent=1)

    metrics = record.finish(3, "train")

    assert metrics["cleaner/faults"] == 2
    assert metrics["cleaner/accuracy"] == 4 / 7
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 1
    assert len(list(read(tmp_path / "trajectories"))) == 7


def test_faults_of_a_step_are_counted_over_all_of_its_batches(tmp_path: Path) -> None:
    record = StepRecord(tmp_path, RECIPE.step_config())
    record.evicted("too_small", [], absent=4)
    record.finish(3, "train", whole=False)
    record.evicted("too_small", [], absent=4)
    with pytest.raises(TooManyFaultsError):
        record.finish(3, "train")


def test_all_that_a_step_sampled_is_counted_groups_that_went_back_too(tmp_path: Path) -> None:
    record = recorded(tmp_path)
    record.evicted("zero_variance", ROWS[:2], absent=0)
    assert record.finish(3, "train")["cleaner/sampled_tokens"] == 10 + 11 + 12 + 13 + 10 + 11


def test_rescues_are_counted_whether_they_succeed_or_not_and_are_in_no_mean(tmp_path: Path) -> None:
    wrong = [rollout(number, False, 1) for number in range(3)]
    found = rollout(3, True)
    found = replace(found, info=RolloutInfo(sampled=6, rescued={"of": 0, "turn": 0}))
    record = StepRecord(tmp_path, RECIPE.step_config())
    config = RECIPE.group_config()
    group = [*wrong, found]
    record.selected(group, RowGroup((), select(group_of(group), config, 1), {}), config, absent=0)
    record.tried(RescueTry(6, found))
    record.evicted("zero_variance", wrong, absent=0)
    record.tried(RescueTry(4))
    figures = record.finish(3, "train")
    names = ("rescue_tries", "rescues", "rescue_tokens", "sampled_tokens", "accuracy")
    assert [figures[f"cleaner/{name}"] for name in names] == [2, 1, 10, 2 * (10 + 11 + 12) + 10, 0]

"""Two weighted rewards: the same rows and advantages in TRL's batch as in a loop of one's own, and they train."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from cleaner_rl.resample import advantages
from cleaner_rl.train.rows import Graded
from cleaner_rl.trajectory import AnyTrajectory, first_attempt_tally
from cleaner_rl.trajectory.store import read
from tests.trl.toy import rollouts, settings, trained

WEIGHTS = {"answer": 1.0, "failed_calls": 0.25}


def stored_reward(each: AnyTrajectory) -> float:
    return (1.0 if each.success else -1.0) - 0.25 * first_attempt_tally(each).failed


def compare(folder: Path, seen: list[Any], steps: int) -> list[AnyTrajectory]:
    """Each batch has the rows of the store, in order, with the advantages of the rewards that a loop would take."""
    stored = list(read(folder / "trajectories"))
    for step, (batch, _) in enumerate(seen[:steps], start=1):
        expected: list[tuple[list[int], float]] = []
        groups: dict[str, list[AnyTrajectory]] = {}
        for each in stored:
            if each.key.step == step:
                groups.setdefault(each.key.task, []).append(each)
        for group in groups.values():
            rewards = [stored_reward(each) for each in group]
            assert [each.reward for each in group] == pytest.approx(rewards)
            for each, advantage in zip(group, advantages(rewards, 1e-4), strict=True):
                expected.append((cast("Graded", each).ids().tolist(), advantage))
        assert len(groups) == 4
        rows = []
        for place, found in enumerate(batch["advantages"].tolist()):
            ids = [
                *batch["prompt_ids"][place][batch["prompt_mask"][place].bool()].tolist(),
                *batch["completion_ids"][place][batch["completion_mask"][place].bool()].tolist(),
            ]
            rows.append((ids, found))
        # Rollouts that failed in different ways can be the same once they are repaired, and keep their rewards.
        for row, wanted in zip(sorted(rows), sorted(expected), strict=True):
            assert row[0] == wanted[0]
            assert row[1] == pytest.approx(wanted[1], abs=1e-4)
    return stored


@pytest.mark.timeout(900)
def test_two_weighted_graders_train(toy: Any, tmp_path: Path) -> None:
    with rollouts(toy, weights=WEIGHTS, folder=tmp_path / "run") as made:
        _, seen = trained(toy, made, settings(tmp_path, max_steps=2))
    stored = compare(tmp_path / "run", seen, 2)
    repaired = [each for each in stored if any(edit.commits for _, edit in each.edits)]
    assert repaired, "the penalty is that of the raw rollout"
    assert all(each.info.terms is not None and each.info.terms["failed_calls"] < 0 for each in repaired)


@pytest.mark.timeout(900)
def test_reward_functions_of_the_trainer_are_asked_about_raw_rollouts(toy: Any, tmp_path: Path) -> None:
    asked: list[Any] = []

    def penalty(completions: Any, truth: Any, trainer_state: Any, **_: Any) -> list[float | None]:
        (messages,), (answer,) = completions, truth
        asked.append((messages, answer, trainer_state.global_step))
        failed = sum(each["role"] == "tool" and "Error" in each["content"] for each in messages)
        return [-float(failed) if failed else None]

    with rollouts(toy, folder=tmp_path / "run") as made:
        config = settings(tmp_path, max_steps=2, reward_weights=[1.0, 0.25])
        trainer, seen = trained(toy, made, config, more_rewards=[penalty])
    stored = compare(tmp_path / "run", seen, 2)
    assert len(asked) == len(stored) == 32
    assert {step for *_, step in asked} == {0, 1}
    assert all(messages[-1]["role"] in ("assistant", "tool") and answer for messages, answer, _ in asked)
    assert any(edit.commits for each in stored for _, edit in each.edits)
    assert trainer.reward_func_names == ["reward", "penalty"]

from __future__ import annotations

from dataclasses import replace

from benchmarks.lab.reading import of_one_reward
from cleaner_rl.trajectory import Ending, Key, TokenSpan, Trajectory
from tests.builders import answered, trajectory


def rollout(task: str, number: int, success: bool) -> Trajectory[TokenSpan]:
    return replace(trajectory(answered(), success=success), key=Key("run", 1, task, number))


def test_groups_that_are_all_right_or_all_wrong_are_counted() -> None:
    both = [rollout("both", 0, True), rollout("both", 1, False)]
    right = [rollout("right", number, True) for number in range(3)]
    wrong = [rollout("wrong", 0, False), replace(rollout("wrong", 1, True), ending=Ending.FAULT)]
    assert of_one_reward([*both, *right]) == 0.5
    assert of_one_reward([*both, *right, *wrong]) == 2 / 3

from __future__ import annotations

from dataclasses import replace

from benchmarks.lab.reading import of_one_reward
from benchmarks.lab.worlds import DRIFT, SLIPS, kind, world
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


def test_a_task_is_known_by_how_many_of_its_names_have_changed() -> None:
    regime = world(DRIFT, 0).regime
    named = kind(regime)
    assert named is not None
    moved = [stem for stem in regime.known if regime.known[stem] != regime.current[stem]]
    still = [stem for stem in regime.known if stem not in moved]
    assert len(moved) == regime.drifted
    assert named(f"drift/{still[0]}-{still[1]}-5-76") == "0_changed"
    assert named(f"drift/{still[0]}-{moved[1]}-5-76") == "1_changed"
    assert named(f"drift/{moved[0]}-{moved[0]}-5-76") == "2_changed"
    assert kind(world(SLIPS, 0).regime) is None

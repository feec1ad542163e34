from __future__ import annotations

from dataclasses import replace

from benchmarks.lab.environments import DRIFT, SLIPS, kind, toy_environment
from benchmarks.lab.reading import reinforced
from cleaner_rl.trajectory import Key, StopReason, TokenSpan, Trajectory
from tests.builders import answered, failed, trajectory, worked


def rollout(task: str, number: int, success: bool, *, works: bool = True) -> Trajectory[TokenSpan]:
    first = worked() if works else failed()
    return replace(trajectory(first, answered(), success=success), key=Key("run", 1, task, number))


def test_groups_that_are_all_right_or_all_wrong_teach_nothing() -> None:
    both = [rollout("both", 0, True), rollout("both", 1, False)]
    right = [rollout("right", number, True, works=False) for number in range(3)]
    wrong = [rollout("wrong", 0, False), replace(rollout("wrong", 1, True), stop_reason=StopReason.FAULT)]
    assert reinforced([*both, *right])["zero_variance_groups"] == 0.5
    assert reinforced([*both, *right, *wrong])["zero_variance_groups"] == 1 - 1 / 3
    assert reinforced([*both, *right])["works_if_right"] == 1.0


def test_a_first_call_that_works_is_reinforced_where_right_rollouts_have_it_and_wrong_ones_dont() -> None:
    right = [rollout("task", number, True, works=number > 0) for number in range(4)]
    wrong = [rollout("task", number, False, works=number > 5) for number in range(4, 8)]
    found = reinforced([*right, *wrong])
    assert (found["works_if_right"], found["works_if_wrong"]) == (0.75, 0.5)


def test_a_task_is_known_by_how_many_of_its_names_have_changed() -> None:
    regime = toy_environment(DRIFT, 0).regime
    named = kind(regime)
    assert named is not None
    moved = [stem for stem in regime.known if regime.known[stem] != regime.current[stem]]
    still = [stem for stem in regime.known if stem not in moved]
    assert len(moved) == regime.drifted
    assert named(f"drift/{still[0]}-{still[1]}-5-76") == "0_changed"
    assert named(f"drift/{still[0]}-{moved[1]}-5-76") == "1_changed"
    assert named(f"drift/{moved[0]}-{moved[0]}-5-76") == "2_changed"
    assert kind(toy_environment(SLIPS, 0).regime) is None

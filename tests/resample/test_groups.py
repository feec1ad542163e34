from dataclasses import replace
from math import inf, nan, sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner_rl.resample import (
    PlainConfig,
    Quality,
    RefillReason,
    RocConfig,
    RolloutGroup,
    advantages,
    group_of,
    resample,
    select,
)
from cleaner_rl.tools import derive_seed
from cleaner_rl.trajectory import RepairMode, StopReason, Tally
from tests.resample.builders import CLEAN, ERROR, FAULT, OK, edited, group, quality, rollout, turn

FOUR = RocConfig(keep=4)
MIXED = [1.0, 0.0] * 4


# Advantages.


def test_advantages_by_hand() -> None:
    # Mean 1/2; squares 4 x 1/4 over n - 1 = 3; so the std is sqrt(1/3), not the population's 1/2.
    half = 0.5 / (sqrt(1 / 3) + 1e-6)
    assert advantages([1.0, 0.0, 1.0, 0.0]) == pytest.approx((half, -half, half, -half), rel=1e-12)
    assert advantages([3.0, 1.0], delta=0.0) == pytest.approx((1 / sqrt(2), -1 / sqrt(2)), rel=1e-12)
    assert advantages([2.0, -1.0, -1.0], delta=0.0) == pytest.approx((2 / sqrt(3), -1 / sqrt(3), -1 / sqrt(3)))
    assert advantages([5.0, 5.0]) == (0.0, 0.0)


def test_one_reward_has_no_advantage() -> None:
    with pytest.raises(ValueError, match=r"1 rewards.* 2 or more"):
        advantages([1.0])


@settings(deadline=None)
@given(st.lists(st.floats(-10, 10), min_size=2, max_size=20))
def test_advantages_sum_to_nothing_and_keep_the_order(rewards: list[float]) -> None:
    scores = advantages(rewards)
    assert sum(scores) == pytest.approx(0, abs=1e-6)
    assert [scores[i] for i in sorted(range(len(rewards)), key=rewards.__getitem__)] == sorted(scores)


# Groups.


def test_a_group_from_trajectories() -> None:
    repaired = rollout(
        edited(RepairMode.SAAR, turn(ERROR), turn(OK, attempt=1)), number=3, task="a", step=7, reward=0.5
    )
    failed = rollout(turn(ERROR), number=1, task="a", step=7, reward=-1.0)
    shaped = rollout(turn(OK), number=0, task="a", step=7, reward=0.2, success=False)
    faulty = rollout(turn(FAULT), number=2, task="a", step=7, reward=None)
    made = group_of([repaired, failed, shaped, faulty], answers=[1, 0, 2, 1])
    assert (made.task, made.step) == ("a", 7)
    assert made.rewards[:3] == [0.5, -1.0, 0.2]
    assert made.qualities[:3] == [
        Quality(Tally(1, 1), Tally(0, 1)),
        Quality(Tally(1, 1), Tally(1, 1), 1.0),
        Quality(Tally(0, 1), Tally(0, 1), 0.5),
    ]
    assert made.positive == [True, False, False, False]
    assert made.rollouts == [3, 1, 0, 2]
    assert made.usable == [True, True, True, False]
    assert [each.format_penalty for each in group_of([repaired, failed]).qualities] == [0.0, 0.0]


def test_a_group_is_one_task_at_one_step() -> None:
    for other in (rollout(task="b"), rollout(step=1)):
        with pytest.raises(ValueError, match=r"one task and one step, not \[.*\]"):
            group_of([rollout(), other])
    with pytest.raises(ValueError, match="one task"):
        group_of([])
    with pytest.raises(ValueError, match="shorter"):
        group_of([rollout(number=0), rollout(number=1)], answers=[1])


def test_a_group_that_can_not_be_is_refused() -> None:
    with pytest.raises(ValueError, match=r"task 't' .*same number"):
        group(MIXED, rollouts=[0] * 8)
    with pytest.raises(ValueError, match="task 't' differ in length"):
        group(MIXED, usable=[True] * 7)
    for reward in (nan, inf):
        with pytest.raises(ValueError, match=r"task 't' .*finite reward"):
            group([reward, 1.0])
    with pytest.raises(ValueError, match="grade it"):
        group_of([rollout(reward=None)])
    assert group([nan, 1.0], usable=[False, True]).rewards[1] == 1.0


# Selection.


def test_the_kept_are_rocs_choice_with_their_own_advantages() -> None:
    # Large enough that no two seeds agree by chance.
    config = RocConfig(keep=4, min_positive=2, min_negative=2)
    qualities = [quality(index % 3, 4) for index in range(64)]
    rewards = [1.0] * 56 + [0.0] * 8
    chosen = select(group(rewards, qualities, task="q", step=5), config, run_seed=9)
    seed = derive_seed(9, "roc", 5, "q")
    assert list(chosen.kept) == resample([True] * 56 + [False] * 8, qualities, range(64), config, seed)
    assert sorted(chosen.kept + chosen.dropped) == list(range(64))
    assert chosen.dropped == tuple(sorted(chosen.dropped))
    assert chosen.absent == ()
    assert chosen.refill is None
    # Two of each side are kept, by the minimum; the whole group had 56 and 8.
    assert chosen.advantages == advantages([chosen.group.rewards[index] for index in chosen.kept])
    assert sorted(chosen.advantages) == sorted(advantages([1.0, 1.0, 0.0, 0.0]))


def test_every_part_of_the_name_changes_the_choice() -> None:
    rewards = [1.0, 0.0] * 32
    config = RocConfig()
    kept = {
        select(group(rewards, task=task, step=step), config, run_seed).kept
        for run_seed, step, task in ((0, 0, "a"), (1, 0, "a"), (0, 1, "a"), (0, 0, "b"))
    }
    assert len(kept) == 4
    assert select(group(rewards, task="a"), config, 0) == select(group(rewards, task="a"), config, 0)


def test_r4_a_group_too_small_is_handed_back_whole() -> None:
    small = group([1.0, 0.0, 1.0, 0.0], usable=[True, False, True, True])
    back = select(small, FOUR, 0)
    assert (back.kept, back.dropped, back.absent) == ((), (0, 2, 3), (1,))
    assert back.refill is RefillReason.TOO_SMALL
    assert back.group is small
    assert back.advantages == ()
    assert select(group([1.0, 0.0, 1.0, 0.0]), FOUR, 0).kept == (0, 1, 2, 3)


def test_r6_a_group_of_equal_rewards_is_handed_back_with_the_reason() -> None:
    for reward in (0.0, 1.0):
        same = group([reward] * 6 + [0.5], usable=[True] * 6 + [False])
        back = select(same, FOUR, 0)
        assert (back.kept, back.dropped, back.absent) == ((), (0, 1, 2, 3, 4, 5), (6,))
        assert back.refill is RefillReason.ZERO_VARIANCE
        assert back.advantages == ()


def test_equal_rewards_are_tested_on_the_whole_oversampled_group() -> None:
    # One shaped reward differs. RoC may drop it, and still the group as a whole had something to say.
    rewards = [1.0] * 7 + [0.5]
    qualities = [CLEAN] * 7 + [quality(1, 1)]
    chosen = select(group(rewards, qualities), FOUR, 0)
    assert chosen.refill is None
    assert 7 in chosen.dropped
    assert chosen.advantages == (0.0,) * 4


def test_of_too_few_rollouts_nobody_can_say_that_they_are_equal() -> None:
    assert select(group([1.0] * 3), FOUR, 0).refill is RefillReason.TOO_SMALL


def test_without_dynamic_sampling_equal_rewards_are_kept() -> None:
    chosen = select(group([0.0] * 6), FOUR, 0, dynamic_sampling=False)
    assert len(chosen.kept) == 4
    assert chosen.refill is None
    assert chosen.advantages == (0.0,) * 4
    assert select(group([0.0] * 3), FOUR, 0, dynamic_sampling=False).refill is RefillReason.TOO_SMALL


def test_plain_groups_keep_all_that_is_usable() -> None:
    chosen = select(group([1.0, 0.0, 1.0], usable=[True, True, False]), PlainConfig(), 0)
    assert (chosen.kept, chosen.dropped, chosen.absent) == ((0, 1), (), (2,))
    assert chosen.advantages == advantages([1.0, 0.0])
    assert select(group([1.0, 0.0], usable=[True, False]), PlainConfig(), 0).refill is RefillReason.TOO_SMALL
    assert select(group([1.0, 1.0]), PlainConfig(), 0).refill is RefillReason.ZERO_VARIANCE
    assert select(group([1.0, 0.0, 0.0]), PlainConfig(minimum=4), 0).refill is RefillReason.TOO_SMALL
    assert select(group([]), PlainConfig(), 0).refill is RefillReason.TOO_SMALL
    with pytest.raises(ValueError, match="minimum=1"):
        PlainConfig(minimum=1)


@st.composite
def groups(draw: st.DrawFn) -> RolloutGroup:
    calls = st.integers(0, 3)
    qualities = st.builds(lambda failed, count: quality(min(failed, count), count), calls, calls)
    one = st.tuples(st.sampled_from([-1.0, 0.0, 1.0]), qualities, st.booleans())
    rows = draw(st.lists(one, max_size=16))
    return group([row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows])


@settings(deadline=None)
@given(groups(), st.sampled_from([FOUR, RocConfig(keep=5), PlainConfig()]), st.integers(0, 9))
def test_every_rollout_is_accounted_for(each: RolloutGroup, config: RocConfig | PlainConfig, seed: int) -> None:
    chosen = select(each, config, seed)
    assert sorted(chosen.kept + chosen.dropped + chosen.absent) == list(range(len(each.rewards)))
    assert all(each.usable[index] for index in chosen.kept + chosen.dropped)
    assert not any(each.usable[index] for index in chosen.absent)
    assert len(chosen.advantages) == len(chosen.kept)
    assert bool(chosen.kept) is (chosen.refill is None)
    if chosen.kept and isinstance(config, RocConfig):
        assert len(chosen.kept) == config.keep


@settings(deadline=None)
@given(groups(), st.sampled_from([FOUR, PlainConfig()]), st.sampled_from([-9.0, 9.0, nan]))
def test_faults_never_touch_what_the_others_get(
    each: RolloutGroup, config: RocConfig | PlainConfig, reward: float
) -> None:
    """Masked would be another mean and std; absent is as if they had never been sampled."""
    present = [index for index, usable in enumerate(each.usable) if usable]
    without = replace(
        each,
        rewards=[each.rewards[index] for index in present],
        qualities=[each.qualities[index] for index in present],
        positive=[each.positive[index] for index in present],
        rollouts=[each.rollouts[index] for index in present],
        usable=[True] * len(present),
    )
    poisoned = replace(
        each,
        rewards=[old if usable else reward for old, usable in zip(each.rewards, each.usable, strict=True)],
        qualities=[old if usable else Quality() for old, usable in zip(each.qualities, each.usable, strict=True)],
    )
    clean, faulty = select(without, config, 3), select(poisoned, config, 3)
    assert tuple(present[index] for index in clean.kept) == faulty.kept
    assert clean.advantages == faulty.advantages
    assert clean.refill is faulty.refill


def test_faulty_rollouts_are_absent_from_a_group_of_trajectories() -> None:
    stop_reasons = [StopReason.ANSWERED, StopReason.FAULT, StopReason.ANSWERED, StopReason.DROPPED]
    rollouts = [
        rollout(turn(OK), number=i, reward=float(i % 3 == 0), stop_reason=stop_reason)
        for i, stop_reason in enumerate(stop_reasons)
    ]
    chosen = select(group_of(rollouts), PlainConfig(), 0)
    assert (chosen.kept, chosen.absent) == ((0, 2), (1, 3))
    assert chosen.advantages == advantages([1.0, 0.0])


def test_words_of_the_reasons() -> None:
    assert [str(each) for each in RefillReason] == ["too_small", "zero_variance"]

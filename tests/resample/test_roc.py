from collections import Counter
from dataclasses import replace
from math import log
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner_rl.resample import PositiveSelection, Quality, QualityOf, RocConfig, assess, is_positive, resample
from cleaner_rl.resample.draws import draws
from cleaner_rl.resample.roc import _arrival, positives_kept
from cleaner_rl.trajectory import RepairMode
from tests.resample.builders import CLEAN, ERROR, OK, edited, quality, rollout, turn

SEEDS = range(400)


def kept(positive: list[bool], qualities: list[Quality], config: RocConfig, seed: int = 0) -> list[int]:
    return resample(positive, qualities, range(len(positive)), config, seed)


def all_positive(qualities: list[Quality], config: RocConfig, seed: int = 0) -> list[int]:
    return kept([True] * len(qualities), qualities, config, seed)


# The policy.


def test_the_defaults_are_the_released_scripts() -> None:
    config = RocConfig()
    assert (config.keep, config.min_positive, config.min_negative) == (16, 2, 2)
    assert (config.positives, config.quality_of) == (PositiveSelection.CLEANEST, QualityOf.FIRST_ATTEMPT)
    assert config.softness == 0.1


def test_a_policy_that_can_not_work_says_what_to_do() -> None:
    with pytest.raises(ValueError, match="keep=1 "):
        RocConfig(keep=1, min_positive=0, min_negative=0)
    with pytest.raises(ValueError, match="negative"):
        RocConfig(min_positive=-1)
    with pytest.raises(ValueError, match="negative"):
        RocConfig(min_negative=-1)
    message = "min_positive=3 .*min_negative=2 .*keep=4"
    with pytest.raises(ValueError, match=message):
        RocConfig(keep=4, min_positive=3)
    for softness in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match=f"softness={softness}"):
            RocConfig(softness=softness)


def test_policies_at_the_edge_are_allowed() -> None:
    assert RocConfig(keep=2, min_positive=0, min_negative=0).keep == 2
    assert RocConfig(keep=4, min_positive=2, min_negative=2).keep == 4
    assert RocConfig(softness=0.5).softness == 0.5


def test_words_of_a_recipe_are_read_and_misspelt_ones_refused() -> None:
    config = RocConfig(positives="weighted", quality_of="residual")  # type: ignore[arg-type]
    assert config.positives is PositiveSelection.WEIGHTED
    assert config.quality_of is QualityOf.RESIDUAL
    with pytest.raises(ValueError, match="wieghted"):
        RocConfig(positives="wieghted")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="first"):
        RocConfig(quality_of="first")  # type: ignore[arg-type]


# How many of each side.


@pytest.mark.parametrize(
    ("positives", "negatives", "keep", "minima", "expected"),
    [
        (16, 16, 16, (2, 2), 8),
        (24, 8, 16, (2, 2), 12),
        (31, 1, 16, (2, 2), 15),  # one negative is all there is
        (1, 31, 16, (2, 2), 1),
        (30, 2, 16, (2, 2), 14),  # the ratio says 1 of 16; the minimum 2
        (2, 30, 16, (2, 2), 2),
        (2, 30, 16, (0, 0), 1),
        (1, 31, 16, (0, 0), 1),  # 0.5: a half is rounded up
        (31, 1, 16, (0, 0), 16),  # 15.5
        (1, 39, 16, (0, 0), 0),  # 0.4
        (32, 0, 16, (2, 2), 16),
        (0, 32, 16, (2, 2), 0),
        (5, 5, 5, (2, 2), 3),  # 2.5
        (3, 7, 7, (0, 0), 2),  # 2.1
        (4, 6, 7, (0, 0), 3),  # 2.8
        (9, 1, 10, (2, 2), 9),  # all of them
        (10, 10, 4, (3, 1), 3),
        (10, 10, 4, (1, 3), 1),
    ],
)
def test_the_ratio_is_kept_by_rounding(
    positives: int, negatives: int, keep: int, minima: tuple[int, int], expected: int
) -> None:
    config = RocConfig(keep=keep, min_positive=minima[0], min_negative=minima[1])
    assert positives_kept(positives, negatives, config) == expected


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[bool], list[Quality], RocConfig, int]:
    positive = draw(st.lists(st.booleans(), min_size=2, max_size=40))
    keep = draw(st.integers(2, len(positive)))
    min_positive = draw(st.integers(0, keep))
    config = RocConfig(
        keep,
        min_positive,
        draw(st.integers(0, keep - min_positive)),
        draw(st.sampled_from(PositiveSelection)),
        draw(st.sampled_from(QualityOf)),
    )
    calls = st.integers(0, 3)
    of_one = st.builds(lambda n, f, r, p: quality(min(f, n), n, min(r, n), p), calls, calls, calls, st.floats(0, 1))
    qualities = draw(st.lists(of_one, min_size=len(positive), max_size=len(positive)))
    return positive, qualities, config, draw(st.integers(0, 2**63 - 1))


@settings(deadline=None)
@given(cases())
def test_size_ratio_and_minima_hold_in_every_case(case: tuple[list[bool], list[Quality], RocConfig, int]) -> None:
    positive, qualities, config, seed = case
    chosen = kept(positive, qualities, config, seed)
    assert chosen == sorted(set(chosen))
    assert set(chosen) <= set(range(len(positive)))
    assert len(chosen) == config.keep
    positives = sum(positive)
    negatives = len(positive) - positives
    chosen_positives = sum(positive[index] for index in chosen)
    low, high = min(config.min_positive, positives), config.keep - min(config.min_negative, negatives)
    assert low <= chosen_positives <= high
    exact = config.keep * positives / len(positive)
    assert abs(chosen_positives - exact) <= 0.5 or chosen_positives in (low, high)


@settings(deadline=None)
@given(cases(), st.randoms(use_true_random=False))
def test_the_same_seed_keeps_the_same_rollouts_in_whatever_order(
    case: tuple[list[bool], list[Quality], RocConfig, int], random: Random
) -> None:
    positive, qualities, config, seed = case
    order = list(range(len(positive)))
    random.shuffle(order)
    chosen = kept(positive, qualities, config, seed)
    assert kept(positive, qualities, config, seed) == chosen
    moved = resample([positive[i] for i in order], [qualities[i] for i in order], order, config, seed)
    assert sorted(order[place] for place in moved) == chosen


# Which of each side.


def test_the_cleanest_successes_are_kept() -> None:
    qualities = [quality(3, 4), quality(0, 4), quality(2, 4), quality(1, 4)]
    assert all_positive(qualities, RocConfig(keep=2, min_positive=0, min_negative=0)) == [1, 3]
    assert all_positive(qualities, RocConfig(keep=3, min_positive=0, min_negative=0)) == [1, 2, 3]


def test_failures_are_not_chosen_by_quality() -> None:
    qualities = [quality(0, 1), quality(1, 1), quality(0, 1), quality(1, 1)]
    config = RocConfig(keep=2, min_positive=0, min_negative=0)
    counts = Counter(index for seed in SEEDS for index in kept([False] * 4, qualities, config, seed))
    assert all(150 <= counts[index] <= 250 for index in range(4))


def test_a_natively_clean_success_ranks_above_a_repaired_one() -> None:
    native = assess(rollout(turn(OK), turn(OK)))
    repaired = assess(rollout(edited(RepairMode.SAAR, turn(ERROR), turn(OK, attempt=1)), turn(OK)))
    collapsed = assess(rollout(edited(RepairMode.HINDSIGHT, turn(ERROR), turn(OK)), turn(OK)))
    raw = assess(rollout(turn(ERROR), turn(OK)))
    two = RocConfig(keep=2, min_positive=0, min_negative=0)
    residual = replace(two, quality_of=QualityOf.RESIDUAL)
    for seed in range(20):
        assert all_positive([repaired, native, collapsed, native], two, seed) == [1, 3]
        # All three are clean in the end: the other tally decides, and the order stays the same.
        assert all_positive([repaired, native, collapsed, native], residual, seed) == [1, 3]
        # As many first failures, but one was mended: residual errors break the tie.
        assert all_positive([raw, repaired, raw, repaired], two, seed) == [1, 3]


def test_the_two_qualities_disagree_where_they_should() -> None:
    failed_first = quality(1, 4, residual=0)
    failed_late = quality(0, 4, residual=1)
    for quality_of, expected in ((QualityOf.FIRST_ATTEMPT, [1, 3]), (QualityOf.RESIDUAL, [0, 2])):
        config = RocConfig(keep=2, min_positive=0, min_negative=0, quality_of=quality_of)
        assert all_positive([failed_first, failed_late] * 2, config) == expected


def test_the_format_can_cost_a_clean_success_its_place() -> None:
    qualities = [quality(0, 4, penalty=0.5), quality(1, 4), quality(1, 4), quality(0, 4, penalty=0.2)]
    assert all_positive(qualities, RocConfig(keep=3, min_positive=0, min_negative=0)) == [1, 2, 3]


def test_r2_a_tool_free_success_ranks_in_the_middle() -> None:
    qualities = [quality(0, 4), quality(0, 4), Quality(), quality(2, 4), quality(1, 4), quality(3, 4), quality(4, 4)]
    for seed in range(20):
        # Its neutral share is 1.5 of 4: after three, before three.
        for keep, place in ((3, False), (4, True)):
            chosen = all_positive(qualities, RocConfig(keep=keep, min_positive=0, min_negative=0), seed)
            assert (2 in chosen) is place


def test_r2_neutral_is_measured_among_successes_only() -> None:
    # The failures' broken calls would push the neutral value from 0 up to 1.
    positive = [True, True, True, False, False, False, False, False]
    qualities = [Quality(), quality(0, 1), quality(1, 2, penalty=0.0), *[quality(1, 1)] * 5]
    config = RocConfig(keep=4, min_positive=2, min_negative=2)
    assert kept(positive, qualities, config)[:2] == [0, 1]


def test_r3_negatives_are_a_uniform_sample_and_not_the_first() -> None:
    config = RocConfig(keep=4, min_positive=0, min_negative=0)
    counts = Counter(index for seed in SEEDS for index in kept([False] * 8, [CLEAN] * 8, config, seed))
    # 200 expected of each, with a standard deviation of 10.
    assert all(150 <= counts[index] <= 250 for index in range(8))


def test_ties_are_drawn_and_not_settled_by_place() -> None:
    config = RocConfig(keep=4, min_positive=0, min_negative=0)
    counts = Counter(index for seed in SEEDS for index in all_positive([CLEAN] * 8, config, seed))
    assert all(150 <= counts[index] <= 250 for index in range(8))


def test_r4_an_odd_target_and_a_poor_side_give_the_exact_size() -> None:
    for size in range(5, 40):
        for positives in range(size + 1):
            positive = [index < positives for index in range(size)]
            for keep in (4, 5):
                assert len(kept(positive, [CLEAN] * size, RocConfig(keep=keep))) == keep


def test_r4_too_few_rollouts_are_an_error_here_and_never_a_smaller_answer() -> None:
    with pytest.raises(ValueError, match=r"15 rollouts .* 16"):
        all_positive([CLEAN] * 15, RocConfig())
    assert all_positive([CLEAN] * 16, RocConfig()) == list(range(16))


def test_weighted_draws_by_cleanliness() -> None:
    # Weights 1 / (0.5 + penalty): 2, 1 and 2/3; so the first draw is theirs in 6, 3 and 2 of 11 cases.
    qualities = [quality(0, 2), quality(1, 2), quality(2, 2)]
    config = RocConfig(keep=2, min_positive=0, min_negative=0, positives=PositiveSelection.WEIGHTED, softness=0.5)
    runs = 4_000
    out = Counter(({0, 1, 2} - set(all_positive(qualities, config, seed))).pop() for seed in range(runs))
    w = [2, 1, 2 / 3]
    total = sum(w)
    for last in range(3):
        a, b = (each for each in range(3) if each != last)
        chance = w[a] / total * w[b] / (total - w[a]) + w[b] / total * w[a] / (total - w[b])
        assert out[last] / runs == pytest.approx(chance, abs=0.025)


def test_weighted_counts_the_format_and_leaves_ties_to_the_draw() -> None:
    config = RocConfig(keep=2, min_positive=0, min_negative=0, positives=PositiveSelection.WEIGHTED, softness=1e-9)
    same_but_residual = [quality(0, 2, penalty=1.0), quality(0, 2), quality(0, 2), quality(0, 2, residual=2)]
    counts = Counter(index for seed in SEEDS for index in all_positive(same_but_residual, config, seed))
    assert counts[0] == 0
    assert all(220 <= counts[index] <= 315 for index in (1, 2, 3))


def test_no_draw_is_without_a_logarithm() -> None:
    assert _arrival(0, 2.0) == pytest.approx(2 * 65 * log(2))
    assert _arrival(2**63, 1.0) == pytest.approx(log(2))
    assert _arrival(2**64 - 1, 1.0) == 0.0


def test_positive_is_success_or_a_reward_above_zero() -> None:
    assert [is_positive(reward) for reward in (-1.0, 0.0, 1e-9, 1.0)] == [False, False, True, True]
    assert is_positive(-1.0, success=True)
    assert not is_positive(1.0, success=False)


# Draws.


def test_draws_belong_to_rollout_numbers() -> None:
    assert draws(7, [5, 3, 9]) == [draws(7, [3, 5, 9])[index] for index in (1, 0, 2)]
    assert draws(7, [3, 5]) != draws(8, [3, 5])
    assert len(set(draws(7, range(100)))) == 100
    assert draws(7, []) == []


def test_draws_are_the_same_on_every_machine() -> None:
    assert draws(0, [0, 1]) == [7101747594409856284, 11625706981298943046]
    assert max(draws(1, range(64))) > 2**63

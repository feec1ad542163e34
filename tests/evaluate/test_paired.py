from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner_rl.evaluate import difference
from cleaner_rl.evaluate.paired import Difference, sign_flip
from cleaner_rl.evaluate.rates import Rate
from cleaner_rl.evaluate.student import t_quantile

GAIN_AT_LARGE = 0.0506
"""Of the problems of the simulation below, by four million draws."""
GAINS = st.lists(st.builds(Fraction, st.integers(-4, 4), st.sampled_from([4, 5])), min_size=1, max_size=9)


def rates(*values: float, samples: int = 8) -> dict[str, Rate]:
    return {f"p{index}": Rate(round(value * samples), samples) for index, value in enumerate(values)}


def drawn(generator: np.random.Generator, chances: np.ndarray, samples: int) -> dict[str, Rate]:
    return {str(i): Rate(int(n), samples) for i, n in enumerate(generator.binomial(samples, chances))}


def ends(found: Difference) -> tuple[float, float, float, float]:
    assert found.low is not None
    assert found.high is not None
    assert found.here_low is not None
    assert found.here_high is not None
    return found.low, found.high, found.here_low, found.here_high


def by_hand(gains: list[Fraction]) -> float:
    """All sign flips, one by one."""
    flips = [
        abs(float(sum(sign * gain for sign, gain in zip(signs, gains, strict=True))))
        for signs in product((-1, 1), repeat=len(gains))
    ]
    return sum(flip >= abs(float(sum(gains))) for flip in flips) / len(flips)


def test_five_problems_that_all_improve_have_one_in_sixteen() -> None:
    # Of the 32 sign flips only "all up" and "all down" reach the sum: 2/32.
    found = difference(rates(0, 0, 0, 0, 0), rates(1, 1, 1, 1, 1))
    assert (found.value, found.p, found.problems, found.better, found.worse) == (1.0, 1 / 16, 5, 5, 0)


def test_three_up_and_one_down() -> None:
    # Sums of four signs: +-4 (2 of 16), +-2 (8 of 16), 0 (6): at least 2 away from 0 are 10 of 16.
    found = difference(rates(0, 0, 0, 1), rates(1, 1, 1, 0))
    assert (found.value, found.p, found.better, found.worse) == (0.5, 10 / 16, 3, 1)


@given(GAINS)
def test_the_count_is_exact(gains: list[Fraction]) -> None:
    p, exact = sign_flip(gains)
    assert exact
    assert p == pytest.approx(by_hand(gains), abs=1e-12)


@given(GAINS)
def test_direction_and_unchanged_problems_do_not_matter(gains: list[Fraction]) -> None:
    p = sign_flip(gains)
    assert sign_flip([-gain for gain in gains]) == p
    assert sign_flip([*gains, Fraction(0)]) == p


def test_samples_stand_in_where_the_count_is_too_large() -> None:
    gains = [Fraction(n, 16) for n in (3, -1, 4, 1, -5, 9, 2, 6, -5, 3)]
    exact, _ = sign_flip(gains)
    sampled, is_exact = sign_flip(gains, largest=0)
    assert not is_exact
    assert sampled == pytest.approx(exact, abs=0.01)


def test_a_thousand_problems_of_sixteen_samples_are_still_counted() -> None:
    generator = np.random.default_rng(1)
    gains = [Fraction(int(n), 16) for n in generator.integers(-3, 4, 1_000)]
    assert sign_flip(gains)[1]


def test_only_common_problems_are_compared() -> None:
    before = {"a": Rate(0, 2), "b": Rate(1, 2), "gone": Rate(2, 2)}
    after = {"a": Rate(2, 2), "b": Rate(1, 2), "new": Rate(2, 2)}
    found = difference(before, after)
    assert (found.value, found.problems) == (0.5, 2)
    assert difference(before, {}) == Difference(None)


def test_the_interval_at_large_is_the_paired_t_interval() -> None:
    gains = [0.5, 0.25, 0.0, -0.25, 0.75]
    found = difference(rates(*[0.25] * 5, samples=400), rates(*(0.25 + gain for gain in gains), samples=400))
    low, high, here_low, here_high = ends(found)
    reach = 2.776 * float(np.std(gains, ddof=1)) / 5**0.5
    assert (low, high) == pytest.approx((0.25 - reach, 0.25 + reach), abs=1e-3)
    assert here_high - here_low < (high - low) / 5, "four hundred samples leave little doubt about these problems"


def test_the_interval_here_adds_up_the_variances_within_problems() -> None:
    found = difference(rates(*[0.5] * 30), rates(*[0.5] * 30))
    _, _, here_low, here_high = ends(found)
    # 60 rates with variance 0.25 / 7 each, 420 degrees of freedom, and one sample more that differs.
    reach = 1.9656 * (60 * 0.25 / 7 + 1 / 64) ** 0.5 / 30
    assert (here_low, here_high) == pytest.approx((-reach, reach), abs=1e-4)


def test_no_difference_at_all_is_not_certainty() -> None:
    low, high, here_low, here_high = ends(difference(rates(*[1.0] * 20), rates(*[1.0] * 20)))
    assert (low, high) == (here_low, here_high)
    assert 0.01 < here_high < 0.02, "160 samples without a failure leave room for about two"


def test_pairs_of_samples_with_the_same_seed_leave_less_to_chance() -> None:
    before, after = rates(*[0.5] * 10), rates(*[0.625] * 10)
    alone = ends(difference(before, after))
    paired = ends(difference(before, after, pairs={f"p{n}": [1] + [0] * 7 for n in range(10)}))
    assert paired[3] - paired[2] < (alone[3] - alone[2]) / 2


def test_a_single_sample_for_each_problem_still_has_intervals() -> None:
    low, high, here_low, here_high = ends(difference(rates(0, 0, 1, 0, samples=1), rates(1, 0, 1, 1, samples=1)))
    assert -1 <= low <= here_low < 0.5 < here_high <= high <= 1


@pytest.mark.parametrize("kind", ["here", "large"])
def test_the_truth_is_in_95_of_100_intervals(kind: str) -> None:
    """The long form is `python -m benchmarks.intervals`."""
    generator = np.random.default_rng(5)
    held = 0
    for _ in range(400):
        chances = generator.beta(0.8, 1.4, 30)
        gains = np.clip(chances + generator.normal(0.05, 0.1, 30), 0, 1) - chances
        found = ends(difference(drawn(generator, chances, 8), drawn(generator, chances + gains, 8)))
        low, high = found[:2] if kind == "large" else found[2:]
        held += low <= (GAIN_AT_LARGE if kind == "large" else gains.mean()) <= high
    assert 370 <= held <= 396


def test_equal_models_are_told_apart_as_often_as_chance_allows() -> None:
    """Under the null, p-values are uniform: at most a share t of them is below t, and not far less."""
    generator = np.random.default_rng(3)
    values = []
    for seed in range(300):
        chances = generator.beta(1, 1, 40)
        runs = [generator.binomial(8, chances) for _ in range(2)]
        before, after = ({str(i): Fraction(int(n), 8) for i, n in enumerate(run)} for run in runs)
        values.append(sign_flip([after[problem] - before[problem] for problem in before], seed=seed)[0])
    for threshold in (0.05, 0.2, 0.5, 0.8):
        share = float(np.mean(np.array(values) <= threshold))
        assert abs(share - threshold) < 0.09, (threshold, share)


def test_a_better_model_is_seen() -> None:
    generator = np.random.default_rng(4)
    chances = generator.beta(1, 1, 60)
    better = np.minimum(1, chances + 0.15)
    found = difference(drawn(generator, chances, 16), drawn(generator, better, 16))
    assert found.p is not None
    assert found.p < 1e-4
    assert ends(found)[0] > 0
    assert ends(found)[2] > 0


@pytest.mark.parametrize(("freedom", "expected"), [(1, 12.706), (2, 4.303), (5, 2.571), (29, 2.045), (120, 1.980)])
def test_quantiles_of_t_are_those_of_the_tables(freedom: int, expected: float) -> None:
    assert t_quantile(0.95, freedom) == pytest.approx(expected, abs=5e-4)
    assert t_quantile(0.95, 10_000) == pytest.approx(1.960, abs=5e-4)

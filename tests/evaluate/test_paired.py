from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner_rl.evaluate import Difference, difference, sign_flip

GAINS = st.lists(st.builds(Fraction, st.integers(-4, 4), st.sampled_from([4, 5])), min_size=1, max_size=9)


def rates(*values: float) -> dict[str, Fraction]:
    return {f"p{index}": Fraction(value) for index, value in enumerate(values)}


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
    assert replace(found, low=None) == Difference(1.0, None, 1.0, 1 / 16, problems=5, better=5, worse=0)
    # And five in a row leave room for one of two that turn the other way: 1 - 0.025^(1/5) = 52 %.
    assert found.low == pytest.approx(1 - 2 * 0.522, abs=0.001)


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
    before = {"a": Fraction(0), "b": Fraction(1, 2), "gone": Fraction(1)}
    after = {"a": Fraction(1), "b": Fraction(1, 2), "new": Fraction(1)}
    found = difference(before, after)
    assert (found.value, found.problems) == (0.5, 2)
    assert difference(before, {}) == Difference(None)


def test_no_difference_at_all_is_not_certainty() -> None:
    same = rates(*[0.5] * 20)
    found = difference(same, same)
    assert (found.value, found.p) == (0.0, 1.0)
    reach = 1 - 0.025 ** (1 / 20)
    assert [found.low, found.high] == pytest.approx([-reach, reach], abs=2e-4)


def test_one_sample_that_changed_tells_hardly_more_than_none() -> None:
    same = rates(*[0.5] * 30)
    none, one = difference(same, same), difference(same, {**same, "p0": Fraction(9, 16)})
    assert none.low is not None
    assert none.high is not None
    assert one.low is not None
    assert one.high is not None
    assert none.low < one.low < none.low + 0.005
    assert none.high < one.high < none.high + 0.005


def test_a_change_of_few_problems_is_in_95_of_100_intervals() -> None:
    """2 % of problems turn from hardly ever to always; the others' samples vary as they do."""
    generator = np.random.default_rng(5)
    held = 0
    for seed in range(200):
        turned = generator.random(30) < 0.02
        before, after = (
            {str(i): Fraction(int(n), 16) for i, n in enumerate(generator.binomial(16, chances))}
            for chances in (np.full(30, 0.004), np.where(turned, 1.0, 0.004))
        )
        found = difference(before, after, seed=seed)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 0.02 * 0.996 <= found.high
    assert held >= 190


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
    runs = [generator.binomial(16, chances), generator.binomial(16, np.minimum(1, chances + 0.15))]
    before, after = ({str(i): Fraction(int(n), 16) for i, n in enumerate(run)} for run in runs)
    found = difference(before, after)
    assert found.p is not None
    assert found.p < 1e-4
    assert found.low is not None
    assert found.low > 0

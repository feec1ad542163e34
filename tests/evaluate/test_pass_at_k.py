from __future__ import annotations

from itertools import combinations
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner_rl.evaluate import pass_at_k
from cleaner_rl.evaluate.scores import ks


@st.composite
def counts(draw: st.DrawFn, most: int = 200) -> tuple[int, int]:
    samples = draw(st.integers(1, most))
    return draw(st.integers(0, samples)), samples


@pytest.mark.parametrize(
    ("right", "samples", "k", "expected"),
    [
        (0, 5, 3, 0.0),
        (5, 5, 1, 1.0),
        (1, 4, 2, 1 / 2),  # of the 6 pairs, 3 hold the one right sample
        (2, 4, 2, 5 / 6),  # only one pair holds none
        (3, 10, 5, 11 / 12),  # 1 - C(7,5)/C(10,5) = 1 - 21/252
        (1, 3, 3, 1.0),
    ],
)
def test_it_equals_what_one_counts_by_hand(right: int, samples: int, k: int, expected: float) -> None:
    assert pass_at_k(right, samples, k) == pytest.approx(expected, abs=1e-15)


@given(counts(8), st.integers(1, 8))
def test_it_is_the_share_of_k_samples_that_hold_a_right_one(count: tuple[int, int], k: int) -> None:
    right, samples = count
    k = min(k, samples)
    picks = list(combinations(range(samples), k))
    held = sum(min(pick) < right for pick in picks)
    assert pass_at_k(right, samples, k) == pytest.approx(held / len(picks), abs=1e-15)


@given(counts())
def test_at_1_it_is_the_mean(count: tuple[int, int]) -> None:
    right, samples = count
    assert pass_at_k(right, samples, 1) == right / samples


@given(counts())
def test_it_grows_with_k_and_with_right_answers(count: tuple[int, int]) -> None:
    right, samples = count
    over_k = [pass_at_k(right, samples, k) for k in range(1, samples + 1)]
    assert over_k == sorted(over_k)
    assert over_k[-1] == float(right > 0)
    if right < samples:
        assert all(pass_at_k(right + 1, samples, k) >= value for k, value in enumerate(over_k, 1))


def test_thousands_of_samples_neither_overflow_nor_cancel() -> None:
    assert comb(10_000, 5_000) > 1e308, "no float holds the number of ways"
    assert pass_at_k(1, 10_000, 5_000) == 0.5
    assert pass_at_k(1, 10_000, 1) == 1e-4


@pytest.mark.parametrize(("right", "samples", "k"), [(0, 4, 5), (0, 4, 0), (5, 4, 1), (-1, 4, 1), (0, 0, 1)])
def test_what_has_no_unbiased_estimate_is_refused(right: int, samples: int, k: int) -> None:
    with pytest.raises(ValueError, match="0 <= right"):
        pass_at_k(right, samples, k)


def test_powers_of_two_and_the_number_itself_are_reported() -> None:
    assert ks(1) == (1,)
    assert ks(10) == (1, 2, 4, 8, 10)
    assert ks(16) == (1, 2, 4, 8, 16)

"""What is learnt of lengths."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner_rl.rollout.balance.lengths import Lengths


def test_before_anything_is_known_all_lengths_are_as_likely() -> None:
    lengths = Lengths(6_400)
    assert lengths.remaining(0) == pytest.approx(3_200)
    assert lengths.remaining(3_200) == pytest.approx(1_600)
    # Of n that grow at one pace, t x n x (1 - t / 6400) are there at t tokens: at most a quarter of all.
    assert lengths.peak([0] * 100, deviations=0) == pytest.approx(100 * 6_400 / 4, rel=0.01)


def test_it_learns_what_it_sees() -> None:
    lengths, random_of = Lengths(20_480), random.Random(0)
    for _ in range(2_000):
        tokens = min(20_480, round(random_of.expovariate(1 / 3_000)))
        lengths.grew(0, tokens)
        lengths.ended(tokens)
    assert lengths.remaining(0) == pytest.approx(3_000, rel=0.1)
    assert lengths.remaining(6_000) == pytest.approx(3_000, rel=0.2), "an exponential has no memory"


def test_the_first_to_end_do_not_make_all_look_short() -> None:
    lengths = Lengths(10_000)
    for _ in range(900):
        lengths.grew(0, 4_000)
    for _ in range(100):
        lengths.grew(0, 1_000)
        lengths.ended(1_000)
    assert lengths.remaining(0) > 4_000


def test_growing_in_pieces_counts_once() -> None:
    whole, pieces = Lengths(6_400), Lengths(6_400)
    for lengths, steps in ((whole, [5_000]), (pieces, [10, 20, 900, 950, 5_000])):
        for _ in range(50):
            before = 0
            for after in steps:
                lengths.grew(before, after)
                before = after
            lengths.ended(5_000)
    assert pieces.remaining(100) == pytest.approx(whole.remaining(100))


@given(st.lists(st.integers(1, 1_000), min_size=1, max_size=30), st.lists(st.integers(1, 1_000), max_size=40))
def test_a_peak_is_never_below_what_is_held_nor_above_what_can_be(held: list[int], ended: list[int]) -> None:
    lengths = Lengths(1_000)
    for tokens in ended:
        lengths.grew(0, tokens)
        lengths.ended(tokens)
    peak = lengths.peak(held, deviations=0)
    assert sum(held) <= peak <= 1_000 * len(held) + 1e-6
    assert lengths.peak([*held, 1], deviations=0) >= peak - 1e-6

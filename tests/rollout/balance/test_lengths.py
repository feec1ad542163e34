"""What is learnt of lengths."""

from __future__ import annotations

import random

import pytest

from cleaner_rl.rollout.balance.lengths import Lengths


def test_before_anything_is_known_all_lengths_are_as_likely() -> None:
    lengths = Lengths(6_400)
    assert lengths.remaining(0) == pytest.approx(3_200)
    assert lengths.remaining(3_200) == pytest.approx(1_600)


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

from __future__ import annotations

from collections.abc import Callable
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner_rl.evaluate.bootstrap import Estimate, Figure, estimates, mean

SHARES = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=2, max_size=12)


def test_of_two_problems_one_is_drawn_so_the_interval_is_from_one_to_the_other() -> None:
    assert mean([0.25, 0.75]) == Estimate(0.5, 0.25, 0.75, problems=2)


def test_of_three_problems_the_ends_are_those_of_the_nine_pairs() -> None:
    # Pairs of 0, 0.3 and 0.9: 0, 0.15 (twice), 0.3, 0.45 (twice), 0.6 (twice), 0.9; each has a ninth, above 2.5 %.
    outer = mean([0.0, 0.3, 0.9])
    assert [outer.value, outer.low, outer.high] == pytest.approx([0.4, 0.0, 0.9])
    # At 70 % the ends cut off 15 %: the least pair (11 %) and the largest are outside, the next are the ends.
    inner = mean([0.0, 0.3, 0.9], level=0.7)
    assert [inner.low, inner.high] == pytest.approx([0.15, 0.6])


def test_a_ratio_is_of_totals_not_of_ratios() -> None:
    (estimate,) = estimates([Figure([1.0, 9.0], [1.0, 99.0], share=True)])
    assert estimate.value == pytest.approx(10 / 100)


def test_a_problem_without_a_say_is_not_among_those_that_a_figure_rests_on() -> None:
    (estimate,) = estimates([Figure([0.0, 1.0, 3.0], [0.0, 2.0, 4.0])])
    assert estimate.problems == 2
    assert estimate.value == pytest.approx(4 / 6)
    assert estimates([Figure([0.0, 0.0], [0.0, 0.0])]) == [Estimate(None)]


def test_one_problem_has_no_interval() -> None:
    assert mean([0.5]) == Estimate(0.5, problems=1)
    assert estimates([]) == []


def test_where_no_problem_or_every_one_is_solved_the_interval_is_the_exact_bound() -> None:
    # 0 of 30: with a true rate of 11.6 %, thirty failures in a row have the chance (1 - 0.116)^30 = 2.5 %.
    none, every = mean([0.0] * 30, share=True), mean([1.0] * 30, share=True)
    assert none.high == pytest.approx(0.1157, abs=2e-4)
    assert every.low == pytest.approx(1 - 0.1157, abs=2e-4)
    assert (none.low, every.high) == (0.0, 1.0)
    assert mean([7.0, 7.0]) == Estimate(7.0, 7.0, 7.0, problems=2), "a number of tokens has no such bound"


@pytest.mark.parametrize("solved", [1, 4, 15])
def test_of_problems_that_are_0_or_1_the_interval_is_clopper_and_pearsons(solved: int) -> None:
    estimate = mean([1.0] * solved + [0.0] * (30 - solved), share=True)

    def at_most(chance: float, count: int) -> float:
        return sum(comb(30, n) * chance**n * (1 - chance) ** (30 - n) for n in range(count + 1))

    # At each end what was seen, or more of it, has a chance of 2.5 %; the draws leave it between 2 and 3.
    assert estimate.high is not None
    assert at_most(estimate.high, solved) == pytest.approx(0.025, abs=0.005)
    assert estimate.low is not None
    assert 1 - at_most(estimate.low, solved - 1) == pytest.approx(0.025, abs=0.005)


def test_one_right_sample_hardly_narrows_what_none_leaves_open() -> None:
    none, one = mean([0.0] * 30, share=True), mean([1 / 16] + [0.0] * 29, share=True)
    assert none.high is not None
    assert one.high is not None
    assert none.high < one.high < none.high + 0.005


def test_problems_that_are_all_alike_are_not_certainty() -> None:
    half = mean([0.5] * 30, share=True)
    assert [half.low, half.high] == pytest.approx([0.5 - 0.1157 / 2, 0.5 + 0.1157 / 2], abs=2e-4)


@given(SHARES, st.integers(0, 11), st.integers(0, 3))
def test_a_share_that_rises_lowers_neither_end(values: list[float], place: int, seed: int) -> None:
    better = list(values)
    better[place % len(values)] = 1.0
    before, after = (mean(each, share=True, seed=seed, draws=500) for each in (values, better))
    assert before.low is not None
    assert before.high is not None
    assert after.low is not None
    assert after.high is not None
    assert 0 <= before.low <= after.low + 1e-12
    assert before.high <= after.high + 1e-12 <= 1 + 2e-12


@given(SHARES, st.integers(0, 3))
def test_an_interval_lies_among_the_problems_values_around_the_mean(values: list[float], seed: int) -> None:
    estimate = mean(values, seed=seed, draws=500)
    assert estimate.value == pytest.approx(np.mean(values))
    assert estimate.low is not None
    assert estimate.high is not None
    assert min(values) - 1e-12 <= estimate.low <= estimate.high <= max(values) + 1e-12


@given(SHARES)
def test_the_same_seed_gives_the_same_bytes(values: list[float]) -> None:
    assert mean(values, seed=5, draws=500) == mean(values, seed=5, draws=500)


def test_figures_together_are_what_they_are_alone() -> None:
    first, second = Figure([0.1, 0.5, 0.9]), Figure([3.0, 1.0, 2.0], [4.0, 2.0, 2.0])
    assert estimates([first, second], seed=3) == [*estimates([first], seed=3), *estimates([second], seed=3)]


def test_many_problems_are_drawn_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [float(index % 2) for index in range(100)]
    whole = mean(values)
    monkeypatch.setattr("cleaner_rl.evaluate.bootstrap.CELLS", 5_000)
    assert mean(values) == whole


Chances = Callable[[np.random.Generator, int], "np.ndarray[tuple[int], np.dtype[np.float64]]"]
MODELS: dict[str, tuple[Chances, float]] = {
    "of every kind": (lambda generator, problems: generator.beta(0.8, 1.2, problems), 0.4),
    "few are solved": (lambda generator, problems: np.where(generator.random(problems) < 0.02, 1.0, 0.004), 0.02392),
    "few are not": (lambda generator, problems: np.where(generator.random(problems) < 0.03, 0.5, 1.0), 0.985),
    "all alike": (lambda _, problems: np.full(problems, 0.5), 0.5),
}
"""Simulated models: each problem's chance, and the mean over all problems of that kind."""


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("problems", [15, 30, 100])
def test_95_of_100_intervals_hold_the_truth(problems: int, model: str) -> None:
    chances, truth = MODELS[model]
    generator = np.random.default_rng(problems)
    runs, held = 400, 0
    for run in range(runs):
        rates = generator.binomial(16, chances(generator, problems)) / 16
        estimate = mean(list(rates), share=True, seed=run, draws=1_000)
        assert estimate.low is not None
        assert estimate.high is not None
        held += estimate.low <= truth <= estimate.high
    # Of 400 tries at 95 %, 98 % of the counts are between 92.2 and 97.5 %. More is allowed.
    assert held / runs >= 0.922


def test_where_problems_differ_the_unseen_one_costs_little() -> None:
    values = [float(value) for value in np.random.default_rng(0).beta(0.8, 1.2, 30)]
    share, plain = mean(values, share=True), mean(values)
    assert share.low is not None
    assert share.high is not None
    assert plain.low is not None
    assert plain.high is not None
    assert plain.high - plain.low < share.high - share.low < 1.2 * (plain.high - plain.low)


def test_the_samples_of_a_problem_are_not_taken_for_independent() -> None:
    """16 copies of the same answer tell no more than one: the interval must not shrink."""
    answers = [1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0]
    (once,) = estimates([Figure(answers, [1.0] * 10)])
    (copied,) = estimates([Figure([16 * answer for answer in answers], [16.0] * 10)])
    assert (copied.low, copied.high) == (once.low, once.high)

"""Pass rates to a training set."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner_rl.tasks import PassRate, Task, by_difficulty, with_pass_rates
from tests.tasks.builders import task


def rated(*passed: int, tries: int = 8) -> list[Task]:
    return [replace(task(name=f"made/{n}"), pass_rate=PassRate(each, tries)) for n, each in enumerate(passed)]


def test_the_7b_recipes_table() -> None:
    filtered = by_difficulty(rated(*[passed for passed in range(9) for _ in range(2_000)]), seed=1)
    assert filtered.seen_by_passed == (2_000,) * 9
    shares = [kept / 2_000 for kept in filtered.kept_by_passed]
    assert shares[0] == shares[8] == 0
    assert shares[3:8] == [1.0] * 5
    # Five standard deviations of a binomial with 2,000 draws.
    assert abs(shares[1] - 0.8) < 0.045
    assert abs(shares[2] - 0.9) < 0.034
    assert len(filtered.kept) == sum(filtered.kept_by_passed)


@given(st.lists(st.integers(0, 8), max_size=30), st.integers(), st.randoms(use_true_random=False))
def test_the_order_of_the_tasks_changes_nothing(passed: list[int], seed: int, shuffler: random.Random) -> None:
    tasks = rated(*passed)
    shuffled = list(tasks)
    shuffler.shuffle(shuffled)
    first, second = by_difficulty(tasks, seed), by_difficulty(shuffled, seed)
    assert {each.id for each in first.kept} == {each.id for each in second.kept}
    assert first.kept_by_passed == second.kept_by_passed


def test_another_seed_keeps_others() -> None:
    tasks = rated(*[1] * 200)
    assert by_difficulty(tasks, 1).kept != by_difficulty(tasks, 2).kept
    assert by_difficulty(tasks, 1).kept == by_difficulty(tasks, 1).kept


def test_a_task_without_a_fitting_rate_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"'made/1'.*pass rate"):
        by_difficulty([task()], seed=0)
    with pytest.raises(ValueError, match=r"16.*8"):
        by_difficulty(rated(4, tries=16), seed=0)


@pytest.mark.parametrize("shares", [(), (1.0,), (0.0, 1.1), (-0.1, 1.0)])
def test_a_table_that_is_none_is_refused(shares: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        by_difficulty([], 0, shares)


def test_rates_are_joined_by_id() -> None:
    one, two = with_pass_rates([task(name="a"), task(name="b")], {"b": PassRate(1, 8)})
    assert (one.pass_rate, two.pass_rate) == (None, PassRate(1, 8))

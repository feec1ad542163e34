"""Seeds: fixed for ever, and apart for all that is apart."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cleaner_rl.tools import derive_seed
from cleaner_rl.trajectory import Seeds
from tests.generators import texts

paths = st.lists(st.integers(-5, 5) | texts(4), max_size=4)


def test_seeds_are_the_same_on_every_machine() -> None:
    assert derive_seed(0) == 6_197_007_067_532_723_406
    assert Seeds(7, "task", 3).request(2, 1) == derive_seed(7, "task", 3, 2, 1) == 4_731_607_776_652_813_064


@given(st.integers(), paths, st.integers(), paths)
def test_other_names_give_other_seeds(run: int, path: list[str | int], other_run: int, other: list[str | int]) -> None:
    seed, other_seed = derive_seed(run, *path), derive_seed(other_run, *other)
    assert 0 <= seed < 2**63
    assert (seed == other_seed) == ((run, path) == (other_run, other))


def test_names_that_look_alike_are_apart() -> None:
    alike: list[tuple[str | int, ...]] = [(1,), ("1",), ("a", "b"), ("ab",), ("a, b",), (), ("",), ("", "")]
    assert len({derive_seed(0, *path) for path in alike}) == len(alike)


def test_requests_and_choices_of_a_rollout_are_apart() -> None:
    rollouts = [Seeds(run, task, rollout) for run in (0, 1) for task in ("a", "b") for rollout in (0, 1)]
    seeds = [each.request(turn, attempt) for each in rollouts for turn in range(3) for attempt in range(3)]
    seeds += [each.request(5) for each in rollouts]
    seeds += [each.choice(purpose) for each in rollouts for purpose in ("purify", "mix")]
    assert len(set(seeds)) == len(seeds)
    assert rollouts[0].request(5) == rollouts[0].request(5, 0)

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from cleaner_rl.resample import PlainConfig, PositiveSelection, RocConfig, select, verdicts
from tests.resample.builders import CLEAN, group, quality

MESSY = quality(2, 3)


def test_a_success_is_judged_by_its_penalty_and_a_failure_by_a_draw() -> None:
    config = RocConfig(keep=4)
    chosen = select(group([1.0, 1.0, 1.0, 0.0, 0.0, 0.0], [MESSY, CLEAN, CLEAN, CLEAN, MESSY, MESSY]), config, 0)
    told = verdicts(chosen, config)
    assert [each["why"] for each in told[:3]] == [
        "a success, not among the 2 cleanest of 3",
        "a success, among the 2 cleanest of 3",
        "a success, among the 2 cleanest of 3",
    ]
    assert [each["penalty"] for each in told] == [2 / 3, 0.0, 0.0, None, None, None]
    assert sorted(each["why"] for each in told[3:]) == [
        "a failure, drawn: 2 of 3 are kept, at random",
        "a failure, drawn: 2 of 3 are kept, at random",
        "a failure, not drawn: 2 of 3 are kept, at random",
    ]


def test_a_group_that_went_back_says_why() -> None:
    equal = select(group([1.0] * 4), RocConfig(keep=4), 0)
    assert {each["why"] for each in verdicts(equal, RocConfig(keep=4))} == {
        "the group was refilled: all its rewards are equal"
    }
    small = select(group([1.0, 0.0, 0.0], usable=[True, True, False]), RocConfig(keep=4), 0)
    assert [each["why"] for each in verdicts(small, RocConfig(keep=4))] == [
        *["the group was refilled: too few of its rollouts are usable"] * 2,
        "not usable: a fault, or dropped",
    ]


def test_without_roc_all_are_kept() -> None:
    told = verdicts(select(group([1.0, 0.0]), PlainConfig(), 0), PlainConfig())
    assert [(each["kept"], each["why"], each["penalty"]) for each in told] == [
        (True, "all usable rollouts are kept", None)
    ] * 2


@given(
    st.lists(st.tuples(st.sampled_from([0.0, 1.0]), st.integers(0, 3), st.booleans()), min_size=2, max_size=12),
    st.sampled_from(PositiveSelection),
    st.integers(0, 99),
)
def test_verdicts_agree_with_the_selection(
    rows: list[tuple[float, int, bool]], positives: PositiveSelection, seed: int
) -> None:
    config = RocConfig(keep=4, positives=positives)
    chosen = select(
        group([r for r, _, _ in rows], [quality(f, 3) for _, f, _ in rows], [u for _, _, u in rows]), config, seed
    )
    told = verdicts(chosen, config)
    assert tuple(index for index, each in enumerate(told) if each["kept"]) == chosen.kept
    assert tuple(each["advantage"] for each in told if each["advantage"] is not None) == chosen.advantages
    for index, each in enumerate(told):
        assert each["kept"] != ("not " in each["why"]) or chosen.refill is not None
        assert (each["penalty"] is None) == (index in chosen.absent or rows[index][0] == 0)
    assert json.loads(json.dumps(told)) == list(told)

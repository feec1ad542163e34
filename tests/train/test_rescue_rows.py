"""How a rescued rollout joins its group: whose row it takes, and which advantages the group has."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner_rl.resample import PlainConfig, RocConfig, advantages
from cleaner_rl.train.rows import (
    Exclusion,
    Graded,
    RescueAdvantage,
    RescueRows,
    RowConfig,
    TrainRow,
    Views,
    group_rows,
    to_row,
)
from cleaner_rl.train.rows.verdicts import REPLACED, with_verdicts
from cleaner_rl.trajectory import RolloutInfo
from tests.builders import answered, failed, worked
from tests.train.test_rows import collapsed, graded, group, rescored

WAYS = [(rows, advantage) for rows in RescueRows for advantage in RescueAdvantage]
UNCAPPED = RowConfig(rescue_advantage=RescueAdvantage.GROUP)
rewards = st.lists(st.floats(-2.0, -1.0), min_size=2, max_size=12)
"""Of wrong rollouts; some have a penalty on their length."""


def rescued(losses: list[float], source: int, gain: float = 1.0) -> list[Graded]:
    """Wrong rollouts, and last the rescue that began with one of them."""
    *wrong, found = group(
        *[graded(failed(), answered(), reward=loss) for loss in losses], graded(worked(), answered(), reward=gain)
    )
    return [*wrong, replace(found, info=RolloutInfo(rescued={"of": source, "turn": 0}))]


def by_rollout(rows: tuple[TrainRow, ...]) -> dict[int, float]:
    return {row.key.rollout: row.advantage for row in rows if row.advantage is not None}


@given(losses=rewards, gain=st.floats(0.0, 1.0), data=st.data())
def test_a_rescue_that_joins_is_one_more_in_the_groups_mean_and_deviation(
    losses: list[float], gain: float, data: st.DataObject
) -> None:
    source = data.draw(st.integers(0, len(losses) - 1))
    made = group_rows(rescued(losses, source, gain), UNCAPPED)
    assert by_rollout(made.rows) == dict(enumerate(advantages([*losses, gain])))


@given(losses=rewards, gain=st.floats(0.0, 1.0), data=st.data())
def test_a_rescue_that_replaces_is_compared_as_if_its_source_had_not_been(
    losses: list[float], gain: float, data: st.DataObject
) -> None:
    source = data.draw(st.integers(0, len(losses) - 1))
    made = group_rows(rescued(losses, source, gain), replace(UNCAPPED, rescue_rows=RescueRows.REPLACE))
    others = [number for number in range(len(losses)) if number != source]
    expected = advantages([*[losses[number] for number in others], gain])
    assert by_rollout(made.rows) == dict(zip([*others, len(losses)], expected, strict=True))
    assert len(made.rows) == len(losses)
    assert made.excluded == {source: Exclusion.REPLACED}
    assert made.faults == 0


@given(losses=rewards, gain=st.floats(0.0, 1.0), rows=st.sampled_from(RescueRows), data=st.data())
def test_ablations_change_advantages_and_nothing_else(
    losses: list[float], gain: float, rows: RescueRows, data: st.DataObject
) -> None:
    rollouts = rescued(losses, data.draw(st.integers(0, len(losses) - 1)), gain)
    usual = group_rows(rollouts, replace(UNCAPPED, rescue_rows=rows))
    capped, only = (
        group_rows(rollouts, RowConfig(rescue_rows=rows, rescue_advantage=advantage))
        for advantage in (RescueAdvantage.CAPPED, RescueAdvantage.RESCUE_ONLY)
    )
    whole = by_rollout(usual.rows)
    rescue = len(losses)
    assert by_rollout(capped.rows) == {**whole, rescue: min(1.0, whole[rescue])}
    assert by_rollout(only.rows) == {**dict.fromkeys(whole, 0.0), rescue: whole[rescue]}
    for made in (capped, only):
        assert made.selection.kept == usual.selection.kept
        assert made.selection.advantages == tuple(row.advantage for row in made.rows)
        for row, other in zip(made.rows, usual.rows, strict=True):
            assert row.response_ids.tolist() == other.response_ids.tolist()
            assert row.loss_mask.tolist() == other.loss_mask.tolist()


def test_alone_among_wrong_ones_a_rescue_has_a_large_advantage_that_the_cap_lowers() -> None:
    rollouts = rescued([-1.0] * 8, 0)
    usual = group_rows(rollouts, UNCAPPED).rows[-1].advantage
    assert usual == pytest.approx(8 / 3, rel=1e-5)
    assert group_rows(rollouts, RowConfig()).rows[-1].advantage == 1.0


def frozen(rows: tuple[TrainRow, ...]) -> list[tuple[object, ...]]:
    """All that a row holds, arrays as their bytes."""
    held = [[getattr(row, each.name) for each in fields(row)] for row in rows]
    return [tuple(value.tobytes() if isinstance(value, np.ndarray) else value for value in row) for row in held]


@pytest.mark.parametrize("views", list(Views))
@pytest.mark.parametrize("config", [PlainConfig(), RocConfig(2, 1, 1)], ids=["plain", "roc"])
@pytest.mark.parametrize(("rows", "advantage"), WAYS)
def test_without_a_rescue_rows_are_as_they_were_byte_for_byte(
    rows: RescueRows, advantage: RescueAdvantage, config: PlainConfig | RocConfig, views: Views
) -> None:
    wrong, long = graded(failed(), answered(), reward=-1.0), graded(answered(), reward=-1.2)
    rollouts = group(rescored(collapsed()), wrong, long, graded(answered()))
    before = group_rows(rollouts, RowConfig(config, views=views))
    after = group_rows(rollouts, RowConfig(config, views=views, rescue_rows=rows, rescue_advantage=advantage))
    assert frozen(after.rows) == frozen(before.rows)
    assert (after.selection, after.excluded) == (before.selection, before.excluded)
    if isinstance(config, PlainConfig) and views is Views.CLEAN:
        own = [row for each in rollouts if (row := to_row(each)) is not None]
        compared = advantages([row.reward for row in own])
        assert frozen(after.rows) == frozen(
            tuple(replace(row, advantage=value) for row, value in zip(own, compared, strict=True))
        )


def test_with_roc_a_rescue_is_one_more_to_select_from() -> None:
    config = RowConfig(RocConfig(4, 1, 1), rescue_rows=RescueRows.REPLACE)
    made = group_rows(rescued([-1.0] * 8, 3), config)
    assert len(made.rows) == 4
    assert not made.excluded
    assert 8 in made.selection.kept


def test_the_store_says_whose_place_a_rescue_took() -> None:
    config = RowConfig(rescue_rows=RescueRows.REPLACE, rescue_advantage=RescueAdvantage.RESCUE_ONLY)
    rollouts = rescued([-1.0] * 3, 1)
    made = group_rows(rollouts, config)
    told = [each.info.verdict for each in with_verdicts(rollouts, made, config.group)]
    assert [each and each["kept"] for each in told] == [True, False, True, True]
    assert told[1] is not None
    assert (told[1]["why"], told[1]["advantage"]) == (REPLACED, None)
    assert [each and each["advantage"] for each in told if each and each["kept"]] == [0.0, 0.0, made.rows[-1].advantage]

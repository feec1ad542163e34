from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner_rl.purify import PurifyConfig, RepairConfig, hindsight, purify
from cleaner_rl.resample import PlainConfig, RefillReason, RocConfig, advantages
from cleaner_rl.train import Method
from cleaner_rl.train.recipe.load import to_recipe
from cleaner_rl.train.rows import (
    Exclusion,
    Graded,
    GraftLogprobs,
    OverlongPenalty,
    RowConfig,
    TrainRow,
    View,
    Views,
    group_rows,
    to_row,
)
from cleaner_rl.train.rows.row import LogprobSource
from cleaner_rl.train.rows.verdicts import with_verdicts
from cleaner_rl.train.verl.packing import pack, unpack
from cleaner_rl.trajectory import Key, RepairMode, Scores, StopReason
from tests.builders import FAULT, answered, failed, observed, trajectory, worked
from tests.train.recipes import values

MASK = RowConfig(mask_failed=True)


def graded(*turns: object, reward: float = 1.0) -> Graded:
    return replace(trajectory(*turns), reward=reward, success=reward > 0, stop_reason=StopReason.ANSWERED)  # type: ignore[arg-type]


def collapsed() -> Graded:
    """A failure that the model mended itself, collapsed afterwards: everything behind it has moved."""
    return purify(graded(failed(), worked(), answered()), PurifyConfig(), RepairMode.HINDSIGHT)


def rescored(trajectory: Graded, level: float = -3.0) -> Graded:
    turns = [
        turn.with_spans(
            lambda span: span if span.sampled is None else replace(span, rescored=_level(len(span), level, 9))
        )
        for turn in trajectory.turns
    ]
    return replace(trajectory, turns=tuple(turns))


def _level(length: int, level: float, version: int) -> Scores:
    return Scores(np.full(length, level, np.float32), version)


def group(*trajectories: Graded) -> list[Graded]:
    return [replace(each, key=Key("run", 1, "task", number)) for number, each in enumerate(trajectories)]


def test_a_row_holds_what_the_trajectory_says() -> None:
    one = graded(worked(), answered())
    row = to_row(one)

    assert row is not None
    assert [*row.prompt_ids, *row.response_ids] == one.ids().tolist()
    assert row.loss_mask.tolist() == one.loss_mask()[len(one.prompt) :].tolist()
    assert row.logprobs.tolist() == one.logprobs()[len(one.prompt) :].tolist()
    assert (row.reward, row.advantage, row.weight, row.logprob_source) == (1.0, None, 1.0, LogprobSource.SAMPLED)


def test_a_trajectory_travels_through_the_queue_unchanged() -> None:
    one = rescored(collapsed())
    assert unpack(pack(one)) == one


@pytest.mark.parametrize(
    ("unusable", "why"),
    [
        (replace(graded(worked()), reward=None), Exclusion.FAULT),
        (replace(graded(worked()), stop_reason=StopReason.FAULT), Exclusion.FAULT),
        (replace(graded(worked()), stop_reason=StopReason.DROPPED), Exclusion.LEFT_OUT),
        (replace(graded(worked()), reward=None, stop_reason=StopReason.TIME_LIMIT), Exclusion.LEFT_OUT),
        (graded(observed(answered(), FAULT)), Exclusion.FAULT),
        (graded(), Exclusion.FAULT),
        (collapsed(), Exclusion.FAULT),
    ],
    ids=["ungraded", "fault", "dropped", "out of time", "tool fault", "empty", "not re-scored"],
)
def test_s2_s15_what_isnt_the_models_doing_is_in_no_row_and_no_statistic(unusable: Graded, why: Exclusion) -> None:
    right, wrong = graded(worked(), answered()), graded(answered(), reward=-1.0)

    assert to_row(unusable) is None
    made = group_rows(group(right, unusable, wrong, right), RowConfig())

    assert [row.key.rollout for row in made.rows] == [0, 2, 3]
    assert [row.advantage for row in made.rows] == list(advantages([1.0, -1.0, 1.0]))
    assert made.excluded == {1: why}
    assert made.faults == (why is Exclusion.FAULT)


def test_a_group_that_faults_left_too_small_gives_no_rows() -> None:
    broken = replace(graded(worked()), stop_reason=StopReason.FAULT)
    made = group_rows(group(graded(answered()), broken), RowConfig(PlainConfig(2)))
    assert (made.rows, made.selection.refill) == ((), RefillReason.TOO_SMALL)


def test_roc_keeps_its_number_of_rows_and_compares_the_kept_alone() -> None:
    right, wrong = graded(worked(), answered()), graded(answered(), reward=-1.0)
    made = group_rows(group(right, right, right, wrong, right, wrong), RowConfig(RocConfig(3, 1, 1), seed=5))

    assert len(made.rows) == 3
    assert [row.advantage for row in made.rows] == list(advantages([row.reward for row in made.rows]))


def test_moved_tokens_have_the_logprob_that_the_recipe_asks_for() -> None:
    one = rescored(collapsed())
    clean, sampled = to_row(one), to_row(one, GraftLogprobs.SAMPLED)

    assert clean is not None
    assert sampled is not None
    assert set(clean.logprobs[clean.loss_mask]) == {-3.0}
    assert -3.0 not in sampled.logprobs[clean.loss_mask]
    assert clean.versions == (9, 9)
    assert (clean.logprob_source, sampled.logprob_source) == (LogprobSource.RESCORED, LogprobSource.SAMPLED)


def test_a_response_that_reaches_into_the_buffer_loses_reward_by_how_far() -> None:
    one = graded(worked(), answered())
    length = len(one) - len(one.prompt)

    shaped = OverlongPenalty(length + 5, buffer=10, penalty=2.0).shape(one)

    assert shaped.reward == pytest.approx(1.0 - 2.0 * 5 / 10)
    assert shaped.success is True
    assert shaped.info.overlong == pytest.approx(1.0)
    assert OverlongPenalty(length + 5, buffer=0).shape(one) == one


def test_a_repair_doesnt_change_the_penalty_on_an_overlong_response() -> None:
    one = graded(failed(), worked(), answered())
    repaired = hindsight(one, RepairConfig()).trajectory
    assert len(repaired) < len(one)
    penalty = OverlongPenalty(len(one) - len(one.prompt) + 5, buffer=10)
    assert penalty.shape(repaired).reward == penalty.shape(one).reward == pytest.approx(0.5)


def test_mask_leaves_failed_turns_out_of_the_loss_only_where_the_advantage_is_positive() -> None:
    right = graded(failed(), worked(), answered())
    wrong = graded(failed(), worked(), answered(), reward=-1.0)
    usual, masked = group_rows(group(right, wrong), RowConfig()), group_rows(group(right, wrong), MASK)

    length = len(right.turns[0])
    good, bad = masked.rows
    assert not good.loss_mask[:length].any()
    assert good.loss_mask[length:].tolist() == usual.rows[0].loss_mask[length:].tolist()
    assert bad.loss_mask.tolist() == usual.rows[1].loss_mask.tolist()
    assert usual.rows[0].loss_mask[:length].any()
    assert [row.response_ids.tolist() for row in masked.rows] == [row.response_ids.tolist() for row in usual.rows]
    assert [row.advantage for row in masked.rows] == [row.advantage for row in usual.rows]


def test_a_repaired_right_rollout_gives_both_views_and_counts_once() -> None:
    sampled = graded(failed(), worked(), answered())
    rollouts = group(rescored(collapsed()), graded(answered(), reward=-1.0))
    usual, made = group_rows(rollouts, RowConfig()), group_rows(rollouts, RowConfig(views=Views.FULL))

    clean, recovery, wrong = made.rows
    assert [row.view for row in made.rows] == [View.CLEAN, View.RECOVERY, View.CLEAN]
    assert [row.weight for row in made.rows] == [1.0, 1.0, 1.0]
    assert made.selection == usual.selection
    assert [clean.advantage, recovery.advantage, wrong.advantage] == [usual.rows[0].advantage] * 2 + [
        usual.rows[1].advantage
    ]
    assert clean.response_ids.tolist() == usual.rows[0].response_ids.tolist()
    first, length = len(sampled.prompt), len(sampled.turns[0])
    assert recovery.response_ids.tolist() == sampled.ids()[first:].tolist()
    assert recovery.logprobs.tolist() == sampled.logprobs()[first:].tolist()
    assert recovery.logprob_source is LogprobSource.SAMPLED
    assert not recovery.loss_mask[:length].any()
    assert recovery.loss_mask[length:].tolist() == sampled.loss_mask()[first + length :].tolist()


def test_one_view_is_drawn_for_each_rollout_by_seed() -> None:
    rollouts = group(*[rescored(collapsed())] * 40, graded(answered(), reward=-1.0))
    drawn = [
        [row.view for row in group_rows(rollouts, RowConfig(views=Views.ONE, seed=seed)).rows] for seed in (1, 1, 2)
    ]

    assert drawn[0] == drawn[1] != drawn[2]
    assert len(drawn[0]) == len(rollouts)
    assert 8 < drawn[0].count(View.RECOVERY) < 32
    assert all(row.weight == 1.0 for row in group_rows(rollouts, RowConfig(views=Views.ONE)).rows)


@given(st.floats(0.1, 4), st.sampled_from(Views))
def test_the_rows_of_a_repaired_rollout_share_its_mass_and_nothing_else_changes(mass: float, views: Views) -> None:
    rollouts = group(rescored(collapsed()), graded(answered()), graded(answered(), reward=-1.0))
    usual = group_rows(rollouts, RowConfig(views=views)).rows
    made = group_rows(rollouts, RowConfig(views=views, mass=mass)).rows
    repaired = [row.advantage or 0.0 for row in made if row.key == rollouts[0].key]

    assert [same(row) for row in made] == [same(row) for row in usual]
    assert sum(repaired) == pytest.approx(mass * (usual[0].advantage or 0.0))
    assert len(set(repaired)) == 1
    assert [row.advantage for row in made[len(repaired) :]] == [row.advantage for row in usual[len(repaired) :]]


def test_two_full_views_have_a_mass_of_two() -> None:
    rollouts = group(rescored(collapsed()), graded(answered()), graded(answered(), reward=-1.0))
    usual, made = (group_rows(rollouts, RowConfig(views=Views.FULL, mass=mass)).rows for mass in (None, 2.0))

    assert [(same(row), row.advantage) for row in made] == [(same(row), row.advantage) for row in usual]


def same(row: TrainRow) -> tuple[object, ...]:
    """Return all of a row but its advantage."""
    arrays = (row.prompt_ids, row.response_ids, row.loss_mask, row.logprobs)
    rest = (row.key, row.view, row.reward, row.weight, row.versions, row.logprob_source)
    return (*rest, *(tuple(array.tolist()) for array in arrays))


@pytest.mark.parametrize("views", list(Views))
def test_nothing_but_repaired_rollouts_with_a_positive_advantage_has_a_second_view(views: Views) -> None:
    wrong = replace(rescored(collapsed()), reward=-1.0, success=False)
    rollouts = group(graded(failed(), worked(), answered()), wrong)
    usual, made = group_rows(rollouts, RowConfig()), group_rows(rollouts, RowConfig(views=views))

    assert [(row.view, row.weight) for row in made.rows] == [(View.CLEAN, 1.0)] * 2
    assert [row.loss_mask.tolist() for row in made.rows] == [row.loss_mask.tolist() for row in usual.rows]


def test_a_stored_verdict_names_the_views_that_are_trained_on() -> None:
    rollouts = group(*[rescored(collapsed())] * 8, graded(answered(), reward=-1.0))

    def stored(views: Views) -> list[list[str] | None]:
        made = group_rows(rollouts, RowConfig(views=views))
        told = [each.info.verdict for each in with_verdicts(rollouts, made, PlainConfig())]
        return [roc.get("views") for roc in told if roc is not None]

    assert stored(Views.CLEAN) == [None] * 9
    assert stored(Views.FULL) == [["clean", "recovery"]] * 8 + [None]
    one = stored(Views.ONE)
    rows = group_rows(rollouts, RowConfig(views=Views.ONE)).rows
    assert one == [["recovery"] if row.view is View.RECOVERY else None for row in rows]
    assert one.count(None) not in (0, 9)


def test_a_rollout_of_nothing_but_failures_counts_in_its_group_though_nothing_of_it_is_in_the_loss() -> None:
    made = group_rows(group(graded(failed(), failed()), graded(answered(), reward=-1.0)), MASK)
    assert [bool(row.loss_mask.any()) for row in made.rows] == [False, True]
    assert [row.advantage for row in made.rows] == list(advantages([1.0, -1.0]))


def test_the_method_mask_is_the_only_one_that_masks() -> None:
    for method in Method:
        recipe = to_recipe(values(method=method.value, batch={"dynamic_sampling": method is Method.DAPO}))
        assert recipe.row_config().mask_failed is (method is Method.MASK)

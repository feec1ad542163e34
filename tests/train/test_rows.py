from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cleaner_rl.purify import PurifyConfig, apply_purification
from cleaner_rl.train.recipe.load import to_recipe
from cleaner_rl.train.rows import Graded, shape, to_row, unpack
from cleaner_rl.trajectory import RepairMode, Scores, StopReason
from tests.builders import FAULT, answered, failed, observed, trajectory, worked
from tests.train.recipes import values

RECIPE = to_recipe(values(method="hindsight", update={"overlong_buffer": 0}))
SAMPLED = to_recipe(values(purify={"graft_logprobs": "sampled"}, update={"overlong_buffer": 0}))


def graded(*turns: object, reward: float = 1.0) -> Graded:
    return replace(trajectory(*turns), reward=reward, success=reward > 0, stop_reason=StopReason.ANSWERED)  # type: ignore[arg-type]


def collapsed() -> Graded:
    """A failure that the model mended itself, collapsed afterwards: everything behind it has moved."""
    return apply_purification(graded(failed(), worked(), answered()), PurifyConfig(), RepairMode.HINDSIGHT)


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


def test_a_row_holds_what_the_trajectory_says() -> None:
    one = graded(worked(), answered())
    row = to_row(one, RECIPE)

    assert row is not None
    assert row.prompt_ids + row.response_ids == one.ids().tolist()
    assert row.response_mask == one.loss_mask()[len(one.prompt) :].tolist()
    assert row.logprobs == one.logprobs()[len(one.prompt) :].tolist()
    assert row.reward == 1.0
    assert unpack(row.packed) == one


@pytest.mark.parametrize(
    "unusable",
    [
        replace(graded(worked()), reward=None),
        replace(graded(worked()), stop_reason=StopReason.FAULT),
        replace(graded(worked()), stop_reason=StopReason.DROPPED),
        graded(observed(answered(), FAULT)),
        graded(),
    ],
)
def test_s2_what_isnt_the_models_doing_makes_no_row(unusable: Graded) -> None:
    assert to_row(unusable, RECIPE) is None


def test_s15_a_moved_token_without_a_new_logprob_makes_no_row() -> None:
    assert to_row(collapsed(), RECIPE) is None


def test_moved_tokens_have_the_logprob_that_the_recipe_asks_for() -> None:
    one = rescored(collapsed())
    clean, sampled = to_row(one, RECIPE), to_row(one, SAMPLED)

    assert clean is not None
    assert sampled is not None
    mask = np.array(clean.response_mask, bool)
    assert set(np.array(clean.logprobs)[mask]) == {-3.0}
    assert -3.0 not in np.array(sampled.logprobs)[mask]
    assert clean.versions == (9, 9)


def test_a_response_that_reaches_into_the_buffer_loses_reward_by_how_far() -> None:
    one = graded(worked(), answered())
    length = len(one) - len(one.prompt)
    recipe = to_recipe(
        values(budget={"response_tokens": length + 5}, update={"overlong_buffer": 10, "overlong_penalty": 2.0})
    )

    shaped = shape(one, recipe)

    assert shaped.reward == pytest.approx(1.0 - 2.0 * 5 / 10)
    assert shaped.success is True
    assert shaped.info.overlong == pytest.approx(1.0)


def test_failed_turns_can_be_masked_out_of_the_loss() -> None:
    one = graded(failed(), worked(), answered())
    recipe = to_recipe(values(method="grpo", update={"overlong_buffer": 0, "learn_failed": False}))

    usual, masked = to_row(one, RECIPE), to_row(one, recipe)

    assert usual is not None
    assert masked is not None
    length = len(one.turns[0])
    assert not any(masked.response_mask[:length])
    assert masked.response_mask[length:] == usual.response_mask[length:]
    assert masked.response_ids == usual.response_ids


def test_a_rollout_of_nothing_but_failures_counts_in_its_group_though_nothing_is_learnt_from_it() -> None:
    recipe = to_recipe(values(method="grpo", update={"overlong_buffer": 0, "learn_failed": False}))
    row = to_row(graded(failed(), failed(), reward=-1.0), recipe)
    assert row is not None
    assert (row.reward, sum(row.response_mask)) == (-1.0, 0)

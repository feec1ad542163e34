"""The lab's gate for repairs, and failed turns at their own cost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from math import inf

import numpy as np
import pytest

from benchmarks.lab.local.beyond import GateConfig
from benchmarks.lab.local.costs import SHRINKS, CostedRow, Values, at_own_cost, token_advantages
from benchmarks.lab.local.gate import Gate, changes, repaired
from cleaner_rl.purify import PurifyConfig, purify
from cleaner_rl.train.rows import Graded, RowConfig, View, Views, group_rows
from cleaner_rl.trajectory import Ids, Key, RepairMode, Scores, without_hindsight
from tests.builders import answered, failed, worked
from tests.train.test_rows import collapsed, graded, group, rescored


def corrected(task: str, code: str = "print(2)", level: float = -3.0) -> Graded:
    """A rollout of a task whose correction has this code, re-scored at this level: sampled at -1.5 and below."""
    made = purify(graded(failed(), worked(code), answered()), PurifyConfig(), RepairMode.HINDSIGHT)
    return rescored(replace(made, key=Key("run", 1, task, 0)), level)


def likely(ids: Ids) -> Ids:
    return np.arange(len(ids), dtype=np.int32)


async def score(prefix: Ids, suffix: Ids) -> Scores:
    return Scores(np.full(len(suffix), -3.0, np.float32), 9)


def passed(config: GateConfig, *rollouts: Graded) -> tuple[list[bool], Gate]:
    """Return whether each rollout is still repaired, each in a group of its own."""
    gate = Gate(config)
    groups = asyncio.run(gate.passed([[each] for each in rollouts], score, likely))
    return [bool(repaired(each)) for (each,) in groups], gate


def test_a_surprising_token_has_a_place_and_lost_more_than_a_nat() -> None:
    one = corrected("a")
    action = one.turns[0].action
    assert action is not None
    start = len(one.prompt) + len(one.turns[0].reasoning)
    found = changes(one, 0, likely)
    ids = one.ids()
    assert [each.now for each in found] == action.ids.tolist()
    assert [each.place for each in found] == [(int(ids[t - 1]), t) for t in range(start, start + len(action))]
    assert changes(corrected("a", level=-2.4), 0, likely) == []
    assert repaired(one) == [0], "the answer was not repaired, it only moved"


@pytest.mark.parametrize(("tasks", "opens"), [("ab", False), ("abc", True), ("aab", False), ("abcd", True)])
def test_without_a_prior_two_other_tasks_must_agree(tasks: str, opens: bool) -> None:
    found, gate = passed(GateConfig(bound=0.3, prior=0.0), *map(corrected, tasks))
    assert found == [opens] * len(tasks)
    assert (gate.judged, gate.opened) == (len(tasks), opens * len(tasks))


def test_votes_that_disagree_leave_the_bound() -> None:
    codes = "print(2)", "print(3)", "print(4)"
    wide = [corrected(task, code) for task, code in zip("abc", codes, strict=True)]
    narrow = [corrected(task, code, -1.6) for task, code in zip("abc", codes, strict=True)]
    config = GateConfig(bound=0.3, prior=-inf)
    assert passed(config, *wide)[0] == [False] * 3
    assert passed(config, *narrow)[0] == [True] * 3


def test_votes_of_earlier_steps_count() -> None:
    gate = Gate(GateConfig(bound=0.3, prior=0.0))
    opened = []
    for task in "abc":
        (group,) = asyncio.run(gate.passed([[corrected(task)]], score, likely))
        opened.append(bool(repaired(group[0])))
    assert opened == [False, False, True]


def test_as_written_the_prior_of_agreement_decides_alone() -> None:
    assert passed(GateConfig(), corrected("a"), corrected("b"))[0] == [True, True]
    assert passed(GateConfig(), corrected("a", level=-2.4))[0] == [True], "nothing is surprising"


def test_what_does_not_pass_is_as_it_was_sampled() -> None:
    one = collapsed()
    gate = Gate(GateConfig(bound=0.3, prior=0.0))
    ((kept,),) = asyncio.run(gate.passed([[rescored(one)]], score, likely))
    assert kept == without_hindsight(one)


def rows(drawn: Sequence[Graded], views: Views = Views.CLEAN) -> tuple[tuple[object, ...], Values]:
    values = Values()
    made = group_rows(drawn, RowConfig(views=views))
    (found,) = at_own_cost([(drawn, made)], values)
    return found, values


def test_a_failed_turn_costs_the_value_after_it_minus_the_value_before_it() -> None:
    right, wrong = graded(failed(), worked(), answered()), graded(failed(), answered(), reward=-1.0)
    drawn = group(right, wrong, graded(worked(), answered()))
    found, values = rows(drawn)
    plain = group_rows(drawn, RowConfig()).rows
    above, below, clean = (row.advantage or 0.0 for row in plain)
    assert values.at(0, 0) == pytest.approx((above + below + clean) / (3 + SHRINKS))
    assert values.at(1, 1) == pytest.approx((above + below) / (2 + SHRINKS))
    cost = values.at(1, 1) - values.at(0, 0)
    assert cost < 0
    for row, rollout, own in zip(found[:2], drawn[:2], (above, below), strict=True):
        assert isinstance(row, CostedRow)
        assert row.advantages is not None
        failed_part = len(rollout.turns[0])
        sampled = row.loss_mask[:failed_part]
        assert set(row.advantages[:failed_part][sampled].tolist()) == {np.float32(cost)}
        assert set(row.advantages[failed_part:][row.loss_mask[failed_part:]].tolist()) == {np.float32(own)}
    assert not isinstance(found[2], CostedRow), "nothing failed in it"
    assert token_advantages(plain[2]).tolist() == [clean] * int(plain[2].loss_mask.sum())


def test_the_recovery_view_has_its_failed_turns_back_and_the_clean_view_stays() -> None:
    drawn = group(rescored(collapsed()), graded(failed(), answered(), reward=-1.0))
    found, _ = rows(drawn, Views.FULL)
    clean, recovery, wrong = found
    assert getattr(clean, "view", None) is View.CLEAN
    assert not isinstance(clean, CostedRow)
    assert isinstance(recovery, CostedRow)
    assert isinstance(wrong, CostedRow)
    raw = without_hindsight(drawn[0])
    assert recovery.loss_mask.tolist() == raw.loss_mask()[len(raw.prompt) :].tolist()

from __future__ import annotations

from math import isnan

import pytest

from cleaner_rl.resample import learning_signal
from cleaner_rl.tools import Status, ToolResult
from cleaner_rl.trajectory import Key, StopReason, TextSpan, Trajectory, Turn


def rollout(task: str, success: bool | None, first: Status = Status.OK) -> Trajectory[TextSpan]:
    turns = (Turn(TextSpan("call"), results=(ToolResult(first),)), Turn(TextSpan("answer")))
    return Trajectory(TextSpan("?"), turns, Key(task=task), success=success)


def test_working_first_calls_are_reinforced_as_far_as_right_rollouts_have_more_of_them() -> None:
    mixed = [rollout("a", True), rollout("a", True, Status.ERROR), *[rollout("a", False, Status.ERROR)] * 2]
    alike = [rollout("b", False)] * 2
    found = learning_signal([*mixed, *alike])
    assert (found.zero_variance, found.works_if_right, found.works_if_wrong) == (0.5, 0.5, 0.0)
    assert found.first_call == pytest.approx(0.25)


def test_what_right_and_wrong_rollouts_share_is_not_learnt() -> None:
    group = [rollout("a", True, Status.ERROR), rollout("a", False, Status.ERROR)]
    assert learning_signal(group).first_call == 0


def test_a_group_that_faults_have_left_with_one_rollout_teaches_nothing() -> None:
    fault = Trajectory(TextSpan("?"), key=Key(task="b"), stop_reason=StopReason.FAULT)
    compared = [rollout("a", True), rollout("a", False)]
    assert learning_signal([*compared, rollout("b", True), fault, rollout("c", None)]).zero_variance == 0.5


def test_without_groups_nothing_is_said() -> None:
    found = learning_signal([])
    assert isnan(found.zero_variance)
    assert isnan(found.first_call)

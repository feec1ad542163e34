"""Hindsight on a log: in time that grows with its turns alone, and no score lost that is still true."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from cleaner_rl.logs import Reading, purify_log, read_record
from cleaner_rl.logs.warrant import Unwarranted
from cleaner_rl.purify import LeftAlone, RepairConfig, hindsight
from cleaner_rl.trajectory import StopReason, TextSpan, TokenSpan, Trajectory, Turn
from tests.builders import answered, failed, trajectory, unread, worked
from tests.logs.cases import FIX, OTHER, SLIP, Case, Step
from tests.logs.rendering import openai

SPOKEN = Step("Yes?", then="Go on.")


def imported(*steps: Step) -> Trajectory[TextSpan]:
    return read_record(openai(Case("long", steps, ())), "openai", 0, Reading())


def seconds(log: Trajectory[TextSpan]) -> float:
    times = []
    for _ in range(3):
        begun = time.process_time()
        purify_log(log, RepairConfig())
        times.append(time.process_time() - begun)
    return min(times)


@pytest.mark.parametrize("steps", [(SLIP, FIX), (SPOKEN,)])
def test_long_logs_take_no_longer_by_the_turn(steps: tuple[Step, ...]) -> None:
    small, large = (seconds(imported(*steps * count)) for count in (200, 1_600))
    assert large < 24 * small + 0.05, "8 times the turns take 8 times the time; 64 times if it grew with the square"


def test_whether_a_log_can_be_used_is_asked_once_of_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    long = imported(*(SPOKEN,) * 50)
    asked: list[Turn[TextSpan]] = []

    def usable(each: Trajectory[TextSpan]) -> bool:
        asked.extend(each.turns)
        return True

    monkeypatch.setattr(Trajectory, "usable", property(usable))
    purify_log(long, RepairConfig())
    assert len(asked) == len(long.turns)


def test_a_failure_before_another_program_is_left_alone_with_the_reason() -> None:
    found = purify_log(imported(SLIP, OTHER, SLIP, FIX), RepairConfig())
    assert found.left_alone == (LeftAlone(0, Unwarranted.OTHER_TARGET),)
    assert [turn.edit is not None for turn in found.trajectory.turns] == [False, False, True]
    similar = purify_log(imported(SLIP, FIX), RepairConfig(min_similarity=0.99))
    assert similar.left_alone == (LeftAlone(0, Unwarranted.DISSIMILAR),)


def rescored() -> Trajectory[TokenSpan]:
    """One edit, and the log-probs of all that was sampled, in the context where it stands now."""
    once = hindsight(trajectory(failed(), worked(), worked(), answered()), RepairConfig()).trajectory
    scored = (turn.with_spans(lambda span: replace(span, rescored=span.sampled)) for turn in once.turns)
    return replace(once, turns=tuple(scored))


def test_scores_stay_where_nothing_is_edited() -> None:
    assert purify_log(rescored(), RepairConfig()).trajectory == rescored()
    unusable = replace(rescored(), stop_reason=StopReason.FAULT)
    assert purify_log(unusable, RepairConfig()).trajectory == unusable


def test_scores_before_the_first_new_edit_stay_and_those_behind_it_go() -> None:
    before = rescored().turns
    raw = replace(rescored(), turns=(*before[:2], unread(), worked("print(1 + 1)"), *before[2:]))
    after = purify_log(raw, RepairConfig()).trajectory.turns
    assert after[:2] == before[:2]
    assert len(after) == 4
    assert not any(span.is_rescored for turn in after[2:] for span in turn.spans())

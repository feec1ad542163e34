"""Hindsight on a log: in time that grows with its turns alone."""

from __future__ import annotations

import time

import pytest

from cleaner_rl.purify import SplicePolicy
from cleaner_rl.purify.logs import Reading, clean, read_record
from cleaner_rl.trajectory import TextSpan, Trajectory, Turn
from tests.purify.logs.cases import FIX, SLIP, Case, Step
from tests.purify.logs.rendering import openai

SPOKEN = Step("Yes?", then="Go on.")


def imported(*steps: Step) -> Trajectory[TextSpan]:
    return read_record(openai(Case("long", steps, ())), "openai", 0, Reading())


def seconds(trajectory: Trajectory[TextSpan]) -> float:
    times = []
    for _ in range(3):
        begun = time.process_time()
        clean(trajectory, SplicePolicy())
        times.append(time.process_time() - begun)
    return min(times)


@pytest.mark.parametrize("steps", [(SLIP, FIX), (SPOKEN,)])
def test_long_logs_take_no_longer_by_the_turn(steps: tuple[Step, ...]) -> None:
    small, large = (seconds(imported(*steps * count)) for count in (200, 1_600))
    assert large < 24 * small + 0.05, "8 times the turns take 8 times the time; 64 times if it grew with the square"


def test_whether_a_log_can_be_used_is_asked_once_of_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    trajectory = imported(*(SPOKEN,) * 50)
    asked: list[Turn[TextSpan]] = []

    def usable(each: Trajectory[TextSpan]) -> bool:
        asked.extend(each.turns)
        return True

    monkeypatch.setattr(Trajectory, "usable", property(usable))
    clean(trajectory, SplicePolicy())
    assert len(asked) == 2 * len(trajectory.turns), "as a part of the whole, and of its stretch"

"""The numbers of a report."""

from __future__ import annotations

import pytest

from cleaner_rl.logs.formats import Reading
from cleaner_rl.logs.purified import PurifiedLog, purify_log
from cleaner_rl.logs.records import read_record
from cleaner_rl.logs.summary import PurifySummary
from cleaner_rl.logs.warrant import Unwarranted
from cleaner_rl.purify import LeftAlone, RepairConfig
from cleaner_rl.purify.hindsight import Reason, left_alone
from cleaner_rl.trajectory import TextSpan, Trajectory
from tests.logs.cases import ANSWER, CASES, SLIP, Case, Step, py
from tests.logs.rendering import openai


def imported(case: Case) -> Trajectory[TextSpan]:
    return read_record(openai(case), "openai", 0, Reading())


def summed(before: Trajectory[TextSpan], cleaned: PurifiedLog[TextSpan]) -> PurifySummary:
    summary = PurifySummary()
    summary.add(before, cleaned)
    return summary


def test_what_was_edited_before_is_not_edited_now() -> None:
    raw = imported(CASES[0])
    once = purify_log(raw, RepairConfig())
    assert summed(raw, once).edits == {"graft": 1}
    again = summed(once.trajectory, purify_log(once.trajectory, RepairConfig()))
    assert (again.edited, again.edits) == (0, {})


@pytest.mark.parametrize(
    ("name", "abandoned"),
    [
        ("a failure that nobody mended", 1),
        ("another tool after the failure", 1),
        ("a failure at the end", 0),
        ("of two calls one failed, and the correction leaves the other out", 0),
        ("a slip and its correction, alike", 0),
    ],
)
def test_abandoned_is_what_nothing_mended_although_the_model_went_on(name: str, abandoned: int) -> None:
    raw = imported(next(case for case in CASES if case.name == name))
    assert summed(raw, purify_log(raw, RepairConfig())).abandoned == abandoned


def test_a_mended_failure_that_was_left_alone_is_not_abandoned() -> None:
    raw = imported(CASES[0])
    assert summed(raw, PurifiedLog(raw, left_alone(raw.turns, Reason.UNSUCCESSFUL))).abandoned == 0


def test_a_failure_that_is_spoken_of_after_somebody_spoke_is_left_alone() -> None:
    fix = Step("Now right.", (py("print(1 + 1)", "2"),), then="Why?")
    told = purify_log(imported(Case("told", (SLIP, fix, Step("There was a SyntaxError."), ANSWER), ())), RepairConfig())
    assert told.left_alone == (LeftAlone(0, Unwarranted.MENTIONED),)
    untold = Case("untold", (SLIP, fix, ANSWER), ())
    ((_, edit),) = purify_log(imported(untold), RepairConfig()).trajectory.edits
    assert edit.stale == ()

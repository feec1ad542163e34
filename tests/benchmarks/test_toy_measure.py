"""What is counted of trajectories: first calls, tries, mends, and what is left, each by kind."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from benchmarks.rollout_repair import report
from benchmarks.toy.measure import figures
from benchmarks.toy.mistakes import Kind
from cleaner_rl.purify import ReplayVerdict
from cleaner_rl.tools import Status, ToolResult
from cleaner_rl.trajectory import Edit, RepairKind, RepairMode, RolloutInfo, StopReason, TokenSpan, Trajectory, Turn
from tests.builders import answered, error, failed, trajectory, worked

LOST = error("NameError", "name 'x' is not defined")
SLOW = ToolResult(Status.TIMEOUT)


def repaired(*original: Turn[TokenSpan]) -> Turn[TokenSpan]:
    tried = tuple(replace(turn, attempt=number) for number, turn in enumerate(original))
    return replace(tried[-1], edit=Edit(RepairMode.SAAR, RepairKind.GRAFT, tried, similarity=0.9))


def in_vain(*original: Turn[TokenSpan]) -> Turn[TokenSpan]:
    return replace(original[0], edit=Edit(RepairMode.SAAR, RepairKind.NONE, original))


def test_a_raw_history_is_counted_turn_by_turn() -> None:
    made = figures([trajectory(failed(), failed(result=SLOW), worked(), answered(), success=True)])
    assert (made.right, made.first_calls) == (1, 1)
    assert made.first == {Kind.NAME: 1}
    assert made.tries == {Kind.NAME: 1, Kind.TIMEOUT: 1}
    assert made.repaired == {Kind.NAME: 0, Kind.TIMEOUT: 1}
    assert made.left == {Kind.NAME: 1, Kind.TIMEOUT: 1}


def test_what_a_good_cell_left_behind_is_a_kind_of_its_own() -> None:
    assert figures([trajectory(worked(), failed(result=LOST))]).left == {Kind.STATE: 1}
    assert figures([trajectory(failed(result=LOST))]).left == {Kind.NAME: 1}


def test_a_repair_leaves_nothing_and_its_attempts_are_tries() -> None:
    made = figures([trajectory(repaired(failed(), failed(result=SLOW), worked()), answered(), success=True)])
    assert made.left == {}
    assert made.first == {Kind.NAME: 1}
    assert made.repaired == {Kind.NAME: 0, Kind.TIMEOUT: 1}
    assert made.edits == {"graft": 1}


def test_attempts_kept_in_vain_are_left() -> None:
    kept = [in_vain(failed()), *(replace(failed(result=SLOW), attempt=each) for each in (1, 2, 3))]
    made = figures([trajectory(*kept)])
    assert made.left == {Kind.NAME: 1, Kind.TIMEOUT: 3}
    assert made.edits == {"in vain": 1}


def test_a_fault_is_in_no_count() -> None:
    made = figures([replace(trajectory(failed()), stop_reason=StopReason.FAULT)])
    assert (made.faults, made.left, made.first_calls) == (1, {}, 0)


def timed(made: Trajectory[TokenSpan], seconds: float) -> Trajectory[TokenSpan]:
    return replace(made, info=RolloutInfo(seconds=seconds))


def test_the_report_compares_what_is_left_and_leaves_out_what_cannot_be_decided() -> None:
    off = [timed(trajectory(failed(), failed(), worked(), answered()), 1.0)] * 4
    on = [timed(trajectory(repaired(failed(), worked()), answered()), 1.1)] * 3 + off[:1]
    verdicts = Counter({ReplayVerdict.SAME: 3, ReplayVerdict.NONDETERMINISTIC: 1})
    found = report(off, on, verdicts)
    assert (found["errors_off"], found["errors_on"], found["errors_on_over_off"]) == (2.0, 0.5, 0.25)
    assert (found["replayed"], found["nondeterministic"]) == (1.0, 0.25)
    assert (found["repair_overhead"], found["repair_overhead_of_parts"]) == (0.075, [0.1, 0.1, 0.1, 0.0])
    a, b, c = (len(turn.reasoning) + len(turn.action or "") for turn in (failed(), worked(), answered()))
    drawn = 3 * (a + b + c) + (2 * a + b + c)  # what a repair replaced was drawn as well
    assert found["repair_overhead_tokens"] == round(drawn / (4 * (2 * a + b + c)) - 1, 4)
    assert report(off, on, Counter({ReplayVerdict.SAME: 1, ReplayVerdict.DIFFERENT: 3}))["replayed"] == 0.25

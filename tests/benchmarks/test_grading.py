"""The labelled answers can be read, and the figures count what they say."""

from __future__ import annotations

from collections import Counter

from benchmarks.grading import FILES, LabelledAnswer, difference, disputed, figures, load
from cleaner_rl.tasks import Grade, Outcome, check_gradable
from tests.tasks.builders import task


def test_every_case_can_be_graded_and_has_a_name_of_its_own() -> None:
    cases = load()
    check_gradable([case.task for case in cases], ["choice", "code", "math"])
    assert len({case.id for case in cases}) == len(cases)
    assert {case.label for case in cases} == {"right", "wrong"}
    counts = {name: len(load([name])) for name in FILES}
    assert counts["first_review"] >= 521
    assert min(counts["own"], counts["blind"]) >= 200
    assert set(disputed()) <= {case.id for case in cases}


def test_disputed_labels_count_as_neither_and_faults_always() -> None:
    outcomes = [Outcome.RIGHT, Outcome.WRONG, Outcome.FAULT]
    cases = [LabelledAnswer(f"{label}/{each}", task(), "", label) for label in ("right", "wrong") for each in outcomes]
    grades = [Grade(Outcome(case.id.split("/")[1])) for case in cases]
    assert Counter(map(difference, cases, grades)) == {None: 2, "faults": 2, "false_right": 1, "false_wrong": 1}
    everything = figures(cases, grades, {})
    assert {key: everything[key] for key in ("pairs", "false_right", "false_wrong", "faults")} == {
        "pairs": 6,
        "false_right": 1,
        "false_wrong": 1,
        "faults": 2,
    }
    assert everything["by_kind"] == {"math": {"pairs": 6, "false_right": 1, "false_wrong": 1, "faults": 2}}
    some = figures(cases, grades, {"wrong/right": "it is right", "wrong/fault": "it is right"})
    assert (some["pairs"], some["false_right"], some["faults"]) == (5, 0, 2)
    assert [each["id"] for each in some["disputed"]] == ["wrong/right", "wrong/fault"]

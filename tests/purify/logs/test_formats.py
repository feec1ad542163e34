"""Each format: there and back field for field, and the twenty cases with their right answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cleaner_rl.purify import SplicePolicy
from cleaner_rl.purify.logs.cleaning import clean
from cleaner_rl.purify.logs.formats import Reading, detect
from cleaner_rl.purify.logs.formats.base import log_of
from cleaner_rl.purify.logs.records import read_record, write_record
from cleaner_rl.trajectory import TextSpan, Trajectory, undo
from tests.purify.logs.cases import CASES, Case
from tests.purify.logs.rendering import RENDERED

READING = Reading()
BOTH = [(variant, case) for variant in RENDERED for case in CASES]
NAMES = [f"{variant}: {case.name}" for variant, case in BOTH]


def imported(variant: str, case: Case) -> tuple[dict[str, Any], Trajectory[TextSpan]]:
    record = RENDERED[variant](case)
    return record, read_record(record, variant.partition(",")[0], 0, READING)


@pytest.mark.parametrize(("variant", "case"), BOTH, ids=NAMES)
def test_a_record_is_known_by_its_content_and_comes_back_field_for_field(variant: str, case: Case) -> None:
    before = json.dumps(RENDERED[variant](case))
    record, trajectory = imported(variant, case)
    assert detect(record) == variant.partition(",")[0]
    assert "opaque" not in log_of(trajectory)
    assert len(trajectory.turns) == len(case.steps)
    assert json.dumps(write_record(trajectory)) == before
    assert json.dumps(record) == before, "reading changes nothing of it"
    assert trajectory.reward == case.reward


@pytest.mark.parametrize(("variant", "case"), BOTH, ids=NAMES)
def test_the_right_answer(variant: str, case: Case) -> None:
    record, trajectory = imported(variant, case)
    cleaned = clean(trajectory, SplicePolicy()).trajectory
    kinds = [turn.edit.granularity.value if turn.edit else "keep" for turn in cleaned.turns]
    assert tuple(kinds) == case.expected
    assert tuple(len(edit.original) for _, edit in cleaned.edits) == case.collapsed
    if not cleaned.edits:
        assert cleaned == trajectory
        assert write_record(cleaned) == record
    restored = cleaned
    for index, _ in reversed(cleaned.edits):
        restored = undo(restored, index)
    assert write_record(restored) == record, "the raw log is in the result"

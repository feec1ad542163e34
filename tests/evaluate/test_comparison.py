from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from cleaner_rl.cli import main
from cleaner_rl.evaluate import Evaluation, Repair, ResultsError, compare
from cleaner_rl.evaluate.rates import Rate
from cleaner_rl.evaluate.report import write_report
from cleaner_rl.evaluate.results import RecoveryResult, RunScore
from cleaner_rl.evaluate.scores import score_set
from tests.evaluate.builders import evaluation, sample


def model(right: list[bool], repair: Repair = Repair.OFF, **settings: object) -> Evaluation:
    some = [sample(f"p{index}", 0, each) for index, each in enumerate(right)]
    return Evaluation("m", settings, (score_set("set", {repair: some}, 1),))


def test_repair_off_is_compared_problem_by_problem() -> None:
    found = compare(model([False] * 5), model([True] * 5))
    assert found.sets["set"].value == 1.0
    assert found.sets["set"].p == 1 / 16
    assert not found.repaired
    assert not found.notes


def test_recovery_is_compared_by_kind_and_over_all() -> None:
    def run(right: int) -> RunScore:
        return RunScore({}, {}, repaired={"a": Rate(right, 2), "b": Rate(2, 2)})

    before, after = model([True, False]), model([True, False])
    before = replace(before, recovery=RecoveryResult(run(0), {"name": run(0), "gone": run(1)}))
    after = replace(after, recovery=RecoveryResult(run(2), {"name": run(1)}))
    found = compare(before, after).recovery
    assert {kind: each.value for kind, each in found.items()} == {"name": 0.25, "all": 0.5}


def test_what_is_not_like_with_like_is_said() -> None:
    notes = compare(model([True] * 3, top_p=0.6), model([True] * 4, top_p=1.0)).notes
    assert notes == ("top_p differs: 0.6 and 1.0", "set: 1 problems are in one of the two only, and are left out")
    (note,) = compare(model([True]), model([True], Repair.ON)).notes
    assert "not run with repair off" in note


def test_nothing_in_common_is_an_error() -> None:
    with pytest.raises(ResultsError, match="in common"):
        compare(model([True]), evaluation(("aime24",)))


def test_the_command_reads_two_folders(tmp_path: Path) -> None:
    write_report(evaluation(("aime24",)), tmp_path / "a")
    write_report(evaluation(("aime24",), seed=3), tmp_path / "b")
    runner = CliRunner()
    shown = runner.invoke(main, ["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(tmp_path / "c")])
    assert shown.exit_code == 0, shown.output
    assert "| aime24 | 30 |" in shown.output
    assert {file.name for file in (tmp_path / "c").iterdir()} == {
        "comparison.json",
        "comparison.md",
        "comparison.html",
    }
    printed = runner.invoke(main, ["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--json"])
    assert json.loads(printed.output)["sets"]["aime24"]["problems"] == 30
    refused = runner.invoke(main, ["compare", str(tmp_path), str(tmp_path / "b")])
    assert refused.exit_code == 1
    assert "cleaner eval" in refused.output

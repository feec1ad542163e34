"""What is kept says which commit it is from, and that commit is all that it is from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import record

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
BEFORE_THIS_RULE = {"balance_speed.json", "evaluate.json"}
"""They need an engine and a machine to themselves; the next time they are measured, they leave this set."""


def test_no_kept_figures_are_from_a_tree_that_differs_from_its_commit() -> None:
    kept = {path: json.loads(path.read_text()) for path in RESULTS.rglob("*.json")}
    dirty = {path.name for path, each in kept.items() if str(each.get("commit", "")).endswith(record.DIRTY)}
    assert dirty == BEFORE_THIS_RULE


@pytest.mark.parametrize(("status", "marked"), [("", False), (" M README.md", True)])
def test_figures_from_such_a_tree_are_marked_and_that_is_said(
    status: str, marked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(record, "_git", lambda command, *_: "abc1234" if command == "rev-parse" else status)
    record.save(tmp_path / "figures.json", {"speed": 1}, {})
    assert json.loads((tmp_path / "figures.json").read_text())["commit"] == ("abc1234-dirty" if marked else "abc1234")
    assert ("measure again on a clean clone" in capsys.readouterr().err) is marked

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cleaner_rl.evaluate.training_report import report, train_report
from cleaner_rl.trajectory import Key, Phase, StopReason
from cleaner_rl.trajectory.store import ParquetWriter
from tests.builders import answered, failed, trajectory, worked


def keep(folder: Path, phase: Phase, step: int, right: Sequence[bool | None]) -> None:
    """One rollout for each task; None is a fault's."""
    with ParquetWriter(folder / "trajectories") as writer:
        for number, success in enumerate(right):
            turns = (worked(), answered()) if success else (failed(), answered())
            stop_reason = StopReason.FAULT if success is None else StopReason.ANSWERED
            one = trajectory(*turns, success=success)
            writer.write(replace(one, key=Key(folder.name, step, f"task{number}", 0, phase), stop_reason=stop_reason))


def test_the_gain_is_that_of_the_last_evaluation_on_the_first(tmp_path: Path) -> None:
    keep(tmp_path, Phase.EVALUATION, 0, [True, False, False, False])
    keep(tmp_path, Phase.TRAINING, 1, [True] * 4)  # what was trained on doesn't count
    keep(tmp_path, Phase.EVALUATION, 10, [True, True, True, None])

    text = train_report(tmp_path)

    found = json.loads((tmp_path / "report.json").read_text())
    assert [(line["step"], line["value"], line["problems"]) for line in found["held_out"]] == [
        (0, 0.25, 4),
        (10, 1.0, 3),
    ]
    assert [line["errors_per_trajectory"] for line in found["held_out"]] == [0.75, 0.0]
    assert (found["gain"]["value"], found["gain"]["problems"]) == (2 / 3, 3)
    assert text == (tmp_path / "report.md").read_text()
    assert text is not None
    assert "| 10 | 1.000 |" in text


def test_stages_follow_each_other(tmp_path: Path) -> None:
    for stage, right in (("b-first", [False, False]), ("a-second", [True, True])):
        keep(tmp_path / stage, Phase.EVALUATION, 0, right)

    found = report([tmp_path / "b-first", tmp_path / "a-second"])

    assert found is not None
    assert [line["part"] for line in found["held_out"]] == ["b-first", "a-second"]  # type: ignore[attr-defined]


def test_a_run_without_held_out_tasks_has_no_report(tmp_path: Path) -> None:
    keep(tmp_path, Phase.TRAINING, 1, [True])
    assert train_report(tmp_path) is None
    assert not (tmp_path / "report.md").exists()

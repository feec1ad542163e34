from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

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


def test_a_run_that_logged_and_evaluated_nothing_has_no_report(tmp_path: Path) -> None:
    keep(tmp_path, Phase.TRAINING, 1, [True])
    assert train_report(tmp_path) is None
    assert not (tmp_path / "report.md").exists()


def log(folder: Path, *steps: dict[str, float]) -> None:
    lines = [{"run": folder.name, "step": number, "metrics": step} for number, step in enumerate(steps, 1)]
    keep(folder, Phase.TRAINING, 1, [True])
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_the_report_has_the_means_of_the_learning_signal(tmp_path: Path) -> None:
    keep(tmp_path, Phase.EVALUATION, 0, [True, False])
    log(
        tmp_path,
        {"zero_variance_share": 0.5, "first_call_signal": 0.3, "first_attempt_success": 0.6},
        {"zero_variance_share": 1.0, "first_attempt_success": 0.8},  # no group to compare in: nothing is learnt
    )

    text = train_report(tmp_path)

    (found,) = json.loads((tmp_path / "report.json").read_text())["signal"]
    assert found == {
        "part": tmp_path.name,
        "steps": 2,
        "zero_variance_share": 0.75,
        "first_call_signal": 0.15,
        "weak": False,
    }
    assert text is not None
    assert "| 2 | 75.0% | +0.150 |" in text
    assert "Warning" not in text


@pytest.mark.parametrize(("signal", "unaided", "warned"), [(0.049, 0.5, True), (0.05, 0.5, False), (0.0, 0.96, False)])
def test_the_report_warns_of_a_signal_near_0_while_calls_fail(
    tmp_path: Path, signal: float, unaided: float, warned: bool
) -> None:
    log(
        tmp_path / "first",
        {"zero_variance_share": 0.25, "first_call_signal": signal, "first_attempt_success": unaided},
    )
    log(tmp_path / "second", {"zero_variance_share": 0.0, "first_call_signal": 0.4, "first_attempt_success": unaided})

    text = train_report(tmp_path, [tmp_path / "first", tmp_path / "second"])

    assert text is not None
    warnings = [line for line in text.splitlines() if line.startswith("Warning")]
    assert len(warnings) == warned
    assert all("in first " in line and "purify.scope" in line and "25%" in line for line in warnings)


def test_metrics_without_the_signal_are_no_report(tmp_path: Path) -> None:
    log(tmp_path, {"reward": 0.5})
    assert train_report(tmp_path) is None

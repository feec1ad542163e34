"""`examples/trl_grpo.py` as a reader runs it: an unmodified `GRPOTrainer` learns not to fail."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cleaner_rl.trajectory import Phase, TokenSpan, Trajectory
from cleaner_rl.trajectory.store import read

EXAMPLE = Path(__file__).parents[2] / "examples" / "trl_grpo.py"
STEPS = 12


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    folder = tmp_path_factory.mktemp("example")
    command = [sys.executable, str(EXAMPLE), "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
    return json.loads(done.stdout.splitlines()[-1]), folder / "runs" / "trl-grpo"


@pytest.mark.timeout(600)
def test_purified_trajectories_teach_a_model_of_trl_not_to_fail(ran: tuple[dict[str, Any], Path]) -> None:
    figures, _ = ran
    assert list(figures) == ["seconds", "steps", "failed_calls_first", "failed_calls_last"]
    assert 2 * figures["failed_calls_last"] <= figures["failed_calls_first"]


def test_the_run_has_a_store_and_metrics(ran: tuple[dict[str, Any], Path]) -> None:
    _, folder = ran
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    training: list[Trajectory[TokenSpan]] = list(read(folder / "trajectories", Phase.TRAINING))  # type: ignore[arg-type]
    assert len(training) == STEPS * 48
    assert len({each.key for each in training}) == len(training)
    assert any(each.edits for each in training)
    assert all(each.info.verdict is not None and each.info.verdict["kept"] for each in training)


def test_s18_an_evaluation_is_never_repaired(ran: tuple[dict[str, Any], Path]) -> None:
    _, folder = ran
    evaluated = list(read(folder / "trajectories", Phase.EVALUATION))
    assert {each.key.step for each in evaluated} == {0, STEPS}
    assert any(turn.failed for each in evaluated for turn in each.turns)
    assert not any(each.edits for each in evaluated)

"""`cleaner eval` on a real language model, a real server and real problems."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.serving import Served
from benchmarks.thirty import problems
from cleaner_rl.cli import main
from cleaner_rl.evaluate import Repair, read_results
from cleaner_rl.trajectory.store import read

PROMPT = Path(__file__).parents[3] / "benchmarks" / "data" / "small.toml"


@pytest.mark.timeout(900)
def test_a_model_is_judged_from_end_to_end(smollm2: Served, tmp_path: Path) -> None:
    file = tmp_path / "some.jsonl"
    file.write_text("".join(json.dumps(task.to_json()) + "\n" for task in problems()[:6]))
    where = ["--url", smollm2.url, "--model", str(smollm2.model), "--tasks", str(file), "--out", str(tmp_path / "out")]
    how = ["--samples", "2", "--recovery", "1", "--tokens", "200", "--turns", "3", "--tool-seconds", "2"]
    # A seeded request whose prompt is read in two parts kills vLLM 0.27 on CPU, so few come at a time.
    shown = CliRunner().invoke(main, ["eval", *where, *how, "--prompt", str(PROMPT), "--concurrency", "4"])
    assert shown.exit_code == 0, shown.output
    found = read_results(tmp_path / "out")
    (results,) = found.sets
    for repair in Repair:
        run = results.runs[repair]
        assert not run.faults
        assert sum(rate.judged for rate in run.problems.values()) == 12
        assert (run.figures["sampled"].value or 0) > 0
    assert found.recovery is not None
    assert sum(rate.judged for rate in found.recovery.overall.problems.values()) == 6
    kept = list(read(tmp_path / "out" / "trajectories"))
    assert len(kept) == 30
    first = {(each.key.run[:2], each.key.task, each.key.rollout): each.turns[0].text for each in kept}
    alike = sum(first["of", task.id, n] == first["on", task.id, n] for task in problems()[:6] for n in range(2))
    assert alike >= 10, "the same seeds give the same first turn, but for what a batch does to floats"

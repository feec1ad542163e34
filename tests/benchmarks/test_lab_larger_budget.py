"""Models measured with more turns: each once, and broken off at any moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.lab import larger_budget as room
from benchmarks.lab.environments import ToyEnvironment, toy_environment
from benchmarks.lab.recipes import Run
from benchmarks.lab.results import read_larger_budget

RUNS = [Run("drift", "grpo", 0), Run("drift", "saar", 0), Run("drift", "saar", 1), Run("drift", "roc", 0)]


def test_every_model_is_measured_once_and_runs_of_one_world_share_their_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLEANER_LAB", str(tmp_path / "runs"))
    for run in RUNS[:3]:
        for step in (5, 10, 20):
            (tmp_path / "runs" / run.name / f"checkpoints/global_step_{step}/actor/huggingface").mkdir(parents=True)
    asked: list[Path] = []

    def counted(model: Path, place: ToyEnvironment) -> dict[str, float]:
        asked.append(model)
        return {"accuracy": len(asked) / 100}

    monkeypatch.setattr(room, "with_larger_budget", counted)
    results = tmp_path / "results"
    room.measure(RUNS, results, 10, lambda: len(asked) == 4, lambda _: None)
    assert len(asked) == 4
    room.measure(RUNS, results, 10, lambda: False, lambda _: None)

    starts = [toy_environment("drift", seed).folder / "model" for seed in (0, 1)]
    assert sorted(asked) == sorted(
        [*starts, *(model for run in RUNS[:3] for model in _models(tmp_path / "runs" / run.name))]
    )
    assert list(read_larger_budget(RUNS[1], results)) == [0, 10, 20]
    assert read_larger_budget(RUNS[0], results)[0] == read_larger_budget(RUNS[1], results)[0]
    assert read_larger_budget(RUNS[3], results) == {}  # it has not run


def _models(folder: Path) -> list[Path]:
    return [folder / f"checkpoints/global_step_{step}/actor/huggingface" for step in (10, 20)]

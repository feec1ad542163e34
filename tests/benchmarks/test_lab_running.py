"""The lab's own work, with a stand-in for the training: going on, stopping in time, trying again."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

import pytest

from benchmarks.lab import running
from benchmarks.lab.reading import evaluations
from benchmarks.lab.recipes import RATE, Run
from benchmarks.lab.results import Result, read_all
from benchmarks.lab.running import Lab
from cleaner_rl.train.launch.rewind import checkpointed

RUN = Run("drift", "saar", 0)
STEPS = 12


@pytest.fixture(autouse=True)
def _places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEANER_LAB", str(tmp_path / "lab"))
    monkeypatch.setenv("CLEANER_TOY", str(tmp_path / "toy"))
    monkeypatch.setattr(running, "POLL_SECONDS", 0.05)


def lab(tmp_path: Path, said: list[str] | None = None, **options: object) -> Lab:
    told: list[str] = [] if said is None else said
    child = (sys.executable, "-m", "tests.benchmarks.lab_child")
    return Lab(steps=STEPS, results=tmp_path / "results", program=child, say=told.append, **options)  # type: ignore[arg-type]


def only(tmp_path: Path) -> Result:
    (found,) = read_all(tmp_path / "results")
    return found


def whole(result: Result) -> None:
    assert result.finished
    assert sorted(result.training) == list(range(1, STEPS + 1))
    assert sorted(result.evaluation) == [0, 5, 10, 12]
    assert all(each["rollouts"] == 2 for each in result.evaluation.values())
    assert all(each["seconds"] == 2.0 for each in result.training.values())


def test_a_run_leaves_a_result_with_all_figures(tmp_path: Path) -> None:
    lab(tmp_path).work([RUN], 1)

    result = only(tmp_path)
    whole(result)
    at_the_end = result.evaluation[STEPS]
    assert (at_the_end["accuracy"], at_the_end["errors"], at_the_end["first_call_works"]) == (0.5, 0.5, 0.5)
    assert result.training[3]["raw_errors"] == 0.5
    assert result.hours > 0
    assert not list((tmp_path / "lab").rglob("*.pt"))


def test_what_is_finished_isnt_done_again_even_where_its_folder_is_gone(tmp_path: Path) -> None:
    lab(tmp_path).work([RUN], 1)
    (tmp_path / "lab").rename(tmp_path / "gone")
    said: list[str] = []
    lab(tmp_path, said).work([RUN], 1)
    assert said == []
    assert not (tmp_path / "lab").exists()


def test_a_run_that_dies_goes_on_from_its_checkpoint_and_counts_no_step_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHILD_FAILS_AT", "8")  # checkpoints are at 5 and 10
    said: list[str] = []
    lab(tmp_path, said).work([RUN], 1)
    assert [words for words in said if "from step" in words] == [
        "drift-saar-0: from step 0 of 12",
        "drift-saar-0: from step 5 of 12",
    ]
    whole(only(tmp_path))


def test_a_run_that_is_stopped_leaves_what_it_has_and_goes_on_by_the_same_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHILD_WAITS_AT", "7")
    first = lab(tmp_path)
    waits = tmp_path / "lab" / RUN.name / "CHILD_WAITS_AT"

    def stop_when_it_waits() -> None:
        deadline = time.monotonic() + 60
        while not waits.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        first.stop.set()

    watcher = threading.Thread(target=stop_when_it_waits)
    watcher.start()
    first.work([RUN], 1)
    watcher.join()

    assert checkpointed(tmp_path / "lab" / RUN.name) == 5
    assert not only(tmp_path).finished
    assert first.failed == []
    lab(tmp_path).work([RUN], 1)
    whole(only(tmp_path))


def test_a_run_that_fails_again_and_again_doesnt_hold_up_the_others(tmp_path: Path) -> None:
    broken = lab(tmp_path)
    broken.program = (sys.executable, "-c", "raise SystemExit(3)")
    other = Run("drift", "grpo", 0)
    broken.work([RUN, other], 1)
    assert broken.failed == [RUN, other]


def test_other_settings_begin_again_and_delete_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHILD_FAILS_AT", "8")
    monkeypatch.setattr(running, "TRIES", 1)
    lab(tmp_path).work([RUN], 1)
    metrics = (tmp_path / "lab" / RUN.name / "metrics.jsonl").read_text()
    monkeypatch.delenv("CHILD_FAILS_AT")
    said: list[str] = []
    lab(tmp_path, said, changes={"verl": {RATE: 1e-3}}).work([RUN], 1)
    aside = tmp_path / "lab" / "set-aside" / RUN.name
    changed = f"its settings have changed (verl.{RATE} was 0.0003, is 0.001)"
    assert f"drift-saar-0: begins again, because {changed}; see {aside}" in said
    assert (aside / "metrics.jsonl").read_text() == metrics
    whole(only(tmp_path))


def test_a_run_from_before_a_setting_existed_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHILD_FAILS_AT", "8")
    monkeypatch.setattr(running, "TRIES", 1)
    lab(tmp_path).work([RUN], 1)
    monkeypatch.delenv("CHILD_FAILS_AT")
    file = tmp_path / "lab" / RUN.name / "recipe.yaml"
    values = json.loads(file.read_text())
    del values["purify"]["max_logprob_gap"], values["faults"]
    values["faults"] = {"stall_minutes": 5}
    file.write_text(json.dumps(values))
    said: list[str] = []
    lab(tmp_path, said).work([RUN], 1)
    assert any(words.startswith("drift-saar-0: from step 5 of") for words in said)
    assert not (tmp_path / "lab" / "set-aside").exists()
    whole(only(tmp_path))


def test_too_little_time_starts_nothing(tmp_path: Path) -> None:
    lab(tmp_path, until=time.monotonic() + 10).work([RUN], 1)
    assert read_all(tmp_path / "results") == []
    assert evaluations(tmp_path / "lab" / RUN.name) == {}

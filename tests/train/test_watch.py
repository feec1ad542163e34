"""What a run says of itself, by the file that verl's logger writes, and by the output of a verl that fails."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from cleaner_rl.train.launch.start import TrainingFailedError, _run
from cleaner_rl.train.launch.watch import HEADER_EVERY, TAIL_LINES, Watch, duration, tail
from cleaner_rl.train.recipe.load import to_recipe
from cleaner_rl.train.verl.plan import lost_file
from tests.train.recipes import values

FIGURES = {
    "cleaner/reward": -0.625,
    "cleaner/accuracy": 0.1875,
    "cleaner/first_attempt_errors_per_trajectory": 0.44,
    "cleaner/repaired": 0.714,
    "cleaner/zero_variance_groups": 2.0,
    "cleaner/sampled_tokens": 41_200.0,
    "cleaner/faults": 1.0,
    "timing_s/step": 4.13,
}


def log(file: Path, step: int, **figures: float) -> None:
    """Append a line as verl's logger `file` does."""
    with file.open("a") as opened:
        opened.write(json.dumps({"step": step, "data": figures}) + "\n")


def test_each_step_is_a_line_of_a_table_with_the_time_left(tmp_path: Path) -> None:
    said: list[str] = []
    watch = Watch(tmp_path / "verl-0.jsonl", said.append, steps=20)
    watch.poll()
    log(watch.metrics, 1, **FIGURES)
    watch.poll()
    watch.poll()
    header, line = said
    assert header.split("  ")[-1] == "time left"
    assert line.split() == ["1/20", "-0.62", "18.8%", "0.44", "71.4%", "2", "41,200", "4.1", "1", "78", "s"]
    assert len(header) == len(line)


def test_a_figure_that_a_step_lacks_is_a_dash(tmp_path: Path) -> None:
    said: list[str] = []
    watch = Watch(tmp_path / "verl-0.jsonl", said.append)
    log(watch.metrics, 3, **{"cleaner/reward": 1.0, "cleaner/sampled_tokens": 0.0, "timing_s/step": 2.0})
    watch.poll()
    assert said[1].split() == ["3", "+1.00", *["–"] * 4, "0", "2.0", "–"]


def test_a_line_that_is_being_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    said: list[str] = []
    watch = Watch(tmp_path / "verl-0.jsonl", said.append)
    log(watch.metrics, 1, **FIGURES)
    text = watch.metrics.read_text()
    watch.metrics.write_text(text[:20])
    watch.poll()
    assert not said
    watch.metrics.write_text(text)
    watch.poll()
    assert len(said) == 2


def test_the_header_is_repeated(tmp_path: Path) -> None:
    said: list[str] = []
    watch = Watch(tmp_path / "verl-0.jsonl", said.append)
    for step in range(HEADER_EVERY + 1):
        log(watch.metrics, step, **FIGURES)
    watch.poll()
    assert [number for number, line in enumerate(said) if "reward" in line] == [0, HEADER_EVERY + 1]


def test_an_evaluation_is_told_and_a_report_that_fails_ends_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    texts = iter(["Evaluation after step 0"])
    watch = Watch(tmp_path / "verl-0.jsonl", said.append, lambda: next(texts))
    log(watch.metrics, 0, **{"val-core/toy/reward/mean@1": -0.8})
    log(watch.metrics, 1, **FIGURES, **{"val-core/toy/reward/mean@1": -0.8})
    watch.poll()
    assert said[0] == "Evaluation after step 0"
    assert said[2].split()[0] == "1"
    assert said[3] == "What follows an evaluation failed: StopIteration: "


def test_while_verl_starts_a_line_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    watch = Watch(tmp_path / "verl-0.jsonl", said.append)
    for now[0] in (10.0, 31.0, 40.0, 95.0):
        watch.poll()
    assert said == ["  0:31  verl is starting", "  1:35  verl is starting"]
    log(watch.metrics, 0, **{"val-core/toy/reward/mean@1": -0.8})
    now[0] = 126.0
    watch.poll()
    assert said[-1] == "  2:06  the first step is under way"
    log(watch.metrics, 12, **{"train/loss": 0.31})
    now[0] = 157.0
    watch.poll()
    assert said[-1] == "  2:37  step 12, loss 0.310"


@pytest.mark.parametrize(
    ("seconds", "text"), [(7, "7 s"), (600, "10 min"), (9_000, "2 h 30 min"), (400_000, "4 d 15 h")]
)
def test_a_duration_has_two_units_at_most(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_verl_that_fails_is_shown_by_its_last_lines(tmp_path: Path) -> None:
    program = "for number in range(100): print(f'line {number}')\nraise SystemExit('\x1b[36mout of memory\x1b[0m')"
    watch = Watch(tmp_path / "verl-0.jsonl", lambda _: None)
    with pytest.raises(TrainingFailedError) as failed:
        _run([sys.executable, "-c", program], to_recipe(values()), tmp_path, watch, lambda: "It begins again.")
    said = str(failed.value)
    assert said.startswith(f"verl ended with exit code 1; the last lines of {tmp_path / 'verl-0.log'}:")
    assert said.endswith("  out of memory\n\nIt begins again.")
    assert len(tail(tmp_path / "verl-0.log").splitlines()) == TAIL_LINES


@pytest.mark.parametrize(
    ("prints", "lost", "first"),
    [
        ("a traceback", "", "verl ended with exit code 1"),
        ("a traceback", "an inference engine on 10.0.0.2 died", "an inference engine on 10.0.0.2 died"),
        ("The actor died because its node has died.", "", "the machine that ran verl's trainer was lost"),
    ],
)
def test_a_run_that_lost_a_part_says_so_before_all_else(prints: str, lost: str, first: str, tmp_path: Path) -> None:
    file = lost_file(tmp_path)
    file.write_text("of an earlier start")
    writes = f"import pathlib; pathlib.Path({str(file)!r}).write_text({lost!r}); " if lost else ""
    program = f"{writes}print({prints!r}); exit(1)"
    watch = Watch(tmp_path / "verl-0.jsonl", lambda _: None)
    with pytest.raises(TrainingFailedError) as failed:
        _run([sys.executable, "-c", program], to_recipe(values()), tmp_path, watch, lambda: "It resumes.")
    assert str(failed.value).startswith(first)
    assert prints in str(failed.value)
    assert str(failed.value).endswith("It resumes.")

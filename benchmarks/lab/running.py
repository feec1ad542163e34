"""Runs the lab: some runs at a time, each by `cleaner train` as a child process, until all are done or time is up.

The lab can be interrupted at any time, and the same command resumes it: a run from its last checkpoint, the lab with
the runs that aren't finished. The results say which are, so a fresh checkout resumes too. If the settings of an
unfinished run have changed, its folder is set aside and the run begins again; nothing is deleted.

A run that fails or makes no progress is started again, up to three times; then the lab continues with the others and
names it at the end.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain, count
from pathlib import Path
from typing import Any

from benchmarks.lab.environments import lab_folder, toy_environment
from benchmarks.lab.methods import TUNING
from benchmarks.lab.reading import evaluations
from benchmarks.lab.recipes import RATE, SHARED, Run, recipe_of
from benchmarks.lab.results import RESULTS, collect, differences, kept, write
from benchmarks.lab.summary import tuned_rate
from cleaner_rl.train import Recipe, to_values
from cleaner_rl.train.launch.rewind import checkpointed, set_aside

TRIES = 3
STALLED_SECONDS = 900.0
"""A run without a new step for so long, start-up included, is ended and started again."""
WORTH_SECONDS = 240.0
"""With less time left, no run is started."""
GRACE_SECONDS = 60.0
"""How long a run may take to end."""
POLL_SECONDS = 1.0
MAY_DIFFER = ("run.", "verl.trainer.")
"""How changes begin that don't change what a run learns."""
SET_ASIDE = "set-aside"
"""The folder for runs whose settings have changed."""
ROOT = Path(__file__).parents[2]


class Ending(StrEnum):
    """How a process of a run ended."""

    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass
class Lab:
    """One session of the lab."""

    steps: int = 0
    """Instead of each run's own, for a trial."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings laid over every recipe, for a trial."""
    results: Path = RESULTS
    until: float = float("inf")
    """By the monotonic clock."""
    program: Sequence[str] = (sys.executable, "-m", "benchmarks.lab.child")
    say: Callable[[str], None] = print
    stop: threading.Event = field(default_factory=threading.Event)
    failed: list[Run] = field(default_factory=list)
    _making: dict[Path, threading.Lock] = field(default_factory=lambda: defaultdict(threading.Lock))
    """One lock per environment: each is made once, several at a time."""

    def work(self, runs: Sequence[Run], jobs: int) -> None:
        """Do all runs that aren't finished, `jobs` at a time, those that the learning rate rests on first."""
        tuning = [run for run in runs if run.method in {method.name for method in TUNING}]
        for part in (tuning, [run for run in runs if run not in tuning]):
            with ThreadPoolExecutor(jobs) as pool:
                for done in [pool.submit(self._tried, run) for run in part]:
                    done.result()

    @property
    def left(self) -> float:
        """Seconds until time is up."""
        return 0.0 if self.stop.is_set() else self.until - time.monotonic()

    # ---- one run

    def _tried(self, run: Run) -> None:
        tries, before = 0, -1
        while self.left > WORTH_SECONDS:
            stop_reason = self._go_on(run)
            now = checkpointed(lab_folder() / run.name)
            if stop_reason is not Ending.FAILED:
                return
            tries, before = (1 if now > before else tries + 1), now
            if tries == TRIES:
                self.failed.append(run)
                self.say(f"{run.name}: failed {TRIES} times at step {now}; its log is in {lab_folder() / run.name}")
                return

    def _go_on(self, run: Run) -> Ending:
        """Take up a run where it stands."""
        folder, steps = lab_folder() / run.name, self.steps or run.steps
        recipe = recipe_of(run, toy_environment(run.regime, run.seed), self._rate(), steps, self.changes)
        if kept(run, recipe, self.results):
            return Ending.DONE
        with self._making[toy_environment(run.regime, run.seed).folder]:
            made = self._process(
                ["environment", run.regime, str(run.seed)], lab_folder() / f"environment-{run.regime}.log"
            )
        if made is not Ending.DONE:
            return made
        stop_reason = Ending.DONE if self._prepared(folder, recipe) else self._trained(folder, run, steps)
        if stop_reason is Ending.DONE:
            stop_reason = self._process(["recovery", run.regime, str(run.seed), str(folder)], folder / "recovery.log")
        result = collect(folder, run, steps)
        if result.training:
            write(result, recipe, self.results)
        if stop_reason is Ending.DONE:
            _slim(folder)
        last = max(result.evaluation, default=None)
        accuracy = "" if last is None else f", held-out accuracy {result.evaluation[last]['accuracy']:.3f}"
        self.say(f"{run.name}: {stop_reason} at step {max(result.training, default=0)} of {steps}{accuracy}")
        return stop_reason

    def _prepared(self, folder: Path, recipe: Recipe) -> bool:
        """Prepare a run's folder; return whether its training is done already."""
        file = folder / "recipe.yaml"
        if file.exists() and (changed := _changes(json.loads(file.read_text()), recipe)):
            aside = _free(lab_folder() / SET_ASIDE / folder.name)
            aside.parent.mkdir(parents=True, exist_ok=True)
            folder.rename(aside)
            self.say(
                f"{folder.name}: begins again, because its settings have changed ({'; '.join(changed)}); see {aside}"
            )
        folder.mkdir(parents=True, exist_ok=True)
        step = checkpointed(folder)
        set_aside(folder, evaluates=False)
        values = to_values(recipe)
        if step and step in evaluations(folder):
            # Evaluated before it was broken off: once is enough.
            values["verl"] = {**values["verl"], "trainer.val_before_train": False}
        file.write_text(json.dumps(values, indent=2))  # JSON is YAML
        return step >= recipe.run.steps and step in evaluations(folder)

    def _trained(self, folder: Path, run: Run, steps: int) -> Ending:
        starts = json.loads((folder / "starts.json").read_text()) if (folder / "starts.json").exists() else []
        number = len(starts)
        self.say(f"{run.name}: from step {checkpointed(folder)} of {steps}")
        begun = time.monotonic()
        starts.append({"step": checkpointed(folder), "seconds": 0.0})

        def note() -> None:
            starts[-1]["seconds"] = round(time.monotonic() - begun, 1)
            (folder / "starts.json").write_text(json.dumps(starts))

        variables = {"VERL_FILE_LOGGER_PATH": str(folder / f"verl-{number}.jsonl")}
        command = ["train", str(folder / "recipe.yaml")]
        stop_reason = self._process(
            command, folder / f"log-{number}", variables, watched=folder / "metrics.jsonl", note=note
        )
        note()
        return stop_reason

    def _rate(self) -> float:
        """GRPO's learning rate: the best of those tried, or until they were, the usual one."""
        return tuned_rate(self.results) or float(SHARED["verl"][RATE])

    # ---- processes

    def _process(
        self,
        arguments: Sequence[str],
        log: Path,
        variables: Mapping[str, str] | None = None,
        *,
        watched: Path | None = None,
        note: Callable[[], None] = lambda: None,
    ) -> Ending:
        """Run one of `child`'s commands to its end, or until time is up, or nothing moves any more."""
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a") as out:
            if self.left <= GRACE_SECONDS:
                return Ending.STOPPED
            process = subprocess.Popen(
                [*self.program, str(os.getpid()), *arguments],
                cwd=ROOT,
                env={**ENVIRONMENT, **os.environ, **(variables or {})},
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
            try:
                return self._waited(process, watched, note)
            finally:
                _end(process)

    def _waited(self, process: subprocess.Popen[bytes], watched: Path | None, note: Callable[[], None]) -> Ending:
        moved, size = time.monotonic(), -1
        while process.poll() is None:
            if self.left <= GRACE_SECONDS:
                return Ending.STOPPED
            if watched is not None:
                now = watched.stat().st_size if watched.exists() else 0
                if now != size:
                    moved, size = time.monotonic(), now
                if time.monotonic() - moved > STALLED_SECONDS:
                    return Ending.FAILED
            note()
            self.stop.wait(POLL_SECONDS)
        return Ending.DONE if process.returncode == 0 else Ending.FAILED


ENVIRONMENT = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
"""One thread each, unless told otherwise: runs share the cores, and a tiny model gains nothing from more."""


def _end(process: subprocess.Popen[bytes]) -> None:
    """Interrupt a process, which ends what it has started; by force if it doesn't."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _changes(begun: Mapping[str, Any], recipe: Recipe) -> list[str]:
    """Name the settings in which two recipes train otherwise; their length and their first evaluation may differ."""
    return [change for change in differences(begun, recipe, {}) if not change.startswith(MAY_DIFFER)]


def _free(path: Path) -> Path:
    """Return the path, or the same with the first number that isn't taken."""
    names = (path.with_name(f"{path.name}.{number}") for number in count(1))
    return next(name for name in chain([path], names) if not name.exists())


def _slim(folder: Path) -> None:
    """Remove verl's own checkpoint files of a finished run; its models stay."""
    for file in (folder / "checkpoints").glob("global_step_*/**/*.pt"):
        file.unlink()

"""Runs the lab: some runs at a time, each by `cleaner train` in a process of its own, until all are done or time is up.

Everything can be broken off at any moment and goes on by the same command: a run from its last checkpoint, the lab with
whatever isn't finished. What counts as finished is what the results say, so a fresh checkout goes on too. A run whose
settings have changed begins anew.

A run that fails or stands still is started again, up to three times without progress; then the others go on, and the
lab says so at its end.
"""

from __future__ import annotations

import json
import os
import shutil
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
from pathlib import Path
from typing import Any

from benchmarks.lab.arms import TUNING
from benchmarks.lab.reading import evaluations
from benchmarks.lab.recipes import SHARED, Run, recipe_of
from benchmarks.lab.results import RESULTS, collect, kept, write
from benchmarks.lab.summary import tuned_rate
from benchmarks.lab.worlds import lab_folder, world
from cleaner_rl.train import Recipe, to_values
from cleaner_rl.train.abandoned import checkpointed, set_aside

TRIES = 3
STALLED_SECONDS = 900.0
"""Without a new step, start-up included, after which a run is ended and started again."""
WORTH_SECONDS = 240.0
"""Less than this isn't enough for a run to start and get anywhere."""
GRACE_SECONDS = 60.0
"""For a run to end after it was told to."""
POLL_SECONDS = 1.0
ROOT = Path(__file__).parents[2]


class Ending(StrEnum):
    """How a process of a run ended."""

    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass
class Lab:
    """One sitting."""

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
    """One for each world: it is made once, and others may be made meanwhile."""

    def work(self, runs: Sequence[Run], jobs: int) -> None:
        """Do all runs that aren't finished, `jobs` at a time, those that the learning rate rests on first."""
        tuning = [run for run in runs if run.arm in {arm.name for arm in TUNING}]
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
            ending = self._go_on(run)
            now = checkpointed(lab_folder() / run.name)
            if ending is not Ending.FAILED:
                return
            tries, before = (1 if now > before else tries + 1), now
            if tries == TRIES:
                self.failed.append(run)
                self.say(f"{run.name}: failed {TRIES} times at step {now}; its log is in {lab_folder() / run.name}")
                return

    def _go_on(self, run: Run) -> Ending:
        """Take up a run where it stands."""
        folder, steps = lab_folder() / run.name, self.steps or run.steps
        recipe = recipe_of(run, world(run.regime, run.seed), self._rate(), steps, self.changes)
        if kept(run, recipe, self.results):
            return Ending.DONE
        with self._making[world(run.regime, run.seed).folder]:
            made = self._process(["world", run.regime, str(run.seed)], lab_folder() / f"world-{run.regime}.log")
        if made is not Ending.DONE:
            return made
        ending = Ending.DONE if self._prepared(folder, recipe) else self._trained(folder, run, steps)
        if ending is Ending.DONE:
            ending = self._process(["recovery", run.regime, str(run.seed), str(folder)], folder / "recovery.log")
        result = collect(folder, run, steps)
        if result.training:
            write(result, recipe, self.results)
        if ending is Ending.DONE:
            _slim(folder)
        last = max(result.evaluation, default=None)
        accuracy = "" if last is None else f", held-out accuracy {result.evaluation[last]['accuracy']:.3f}"
        self.say(f"{run.name}: {ending} at step {max(result.training, default=0)} of {steps}{accuracy}")
        return ending

    def _prepared(self, folder: Path, recipe: Recipe) -> bool:
        """Put a run's folder in order; whether its training is done already."""
        file = folder / "recipe.yaml"
        if file.exists() and not _same(json.loads(file.read_text()), to_values(recipe)):
            self.say(f"{folder.name}: its settings have changed, so it begins anew")
            shutil.rmtree(folder)
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
        ending = self._process(
            command, folder / f"log-{number}", variables, watched=folder / "metrics.jsonl", note=note
        )
        note()
        return ending

    def _rate(self) -> float:
        """DAPO's learning rate: the best of those tried, or until they were, the usual one."""
        return tuned_rate(self.results) or float(SHARED["update"]["lr"])

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


def _same(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether two recipes train alike; for how long, and whether they evaluate first, may differ."""

    def shape(values: dict[str, Any]) -> dict[str, Any]:
        verl = {key: value for key, value in values["verl"].items() if key != "trainer.val_before_train"}
        return {**values, "verl": verl, "run": None}

    return shape(old) == dict(json.loads(json.dumps(shape(new))))


def _slim(folder: Path) -> None:
    """Of a finished run keep the models; verl's own files, to go on from, aren't needed any more."""
    for file in (folder / "checkpoints").glob("global_step_*/**/*.pt"):
        file.unlink()

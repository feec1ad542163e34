"""A run of `cleaner train` that is watched from outside: started, waited for, killed, and judged by its folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import psutil

ROOT = Path(__file__).parents[2]


class Command:
    """The command of a run, which is given again and again; each start has a log of its own in `place`."""

    def __init__(
        self, recipe: Path, place: Path, patience: float, environment: Mapping[str, str], before: Sequence[str] = ()
    ) -> None:
        """Take the words `before` the command, such as those that run it elsewhere."""
        self._recipe, self._place, self._before = recipe, place, before
        self._environment = environment
        self._deadline = time.monotonic() + patience
        self._running: subprocess.Popen[bytes] | None = None

    def start(self) -> subprocess.Popen[bytes]:
        """Give the command."""
        number = len(list(self._place.glob("log-*"))) + 1
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        train = [sys.executable, "-c", "from cleaner_rl.cli import main; main()", "train", str(self._recipe)]
        variables = {**os.environ, "PYTHONPATH": path, **self._environment}
        with (self._place / f"log-{number}").open("w") as log:
            self._running = subprocess.Popen(
                [*self._before, *train], env=variables, stdout=log, stderr=log, start_new_session=True
            )
        return self._running

    @property
    def said(self) -> str:
        """What the last start has printed."""
        return sorted(self._place.glob("log-*"), key=lambda log: int(log.name[4:]))[-1].read_text()

    def until(self, met: Callable[[], bool], *, may_end: bool = False) -> None:
        """Wait until something is true; fail if that takes too long, or if the run ends before and may not."""
        while not met():
            ended = self._running is not None and self._running.poll() is not None
            if time.monotonic() > self._deadline or (ended and not may_end and not met()):
                raise click.ClickException(f"the run stands still; its last words were\n{self.said[-5_000:]}")
            time.sleep(0.2)

    def ended(self) -> int:
        """Wait until the run ends, and return its exit code."""
        running = self._running
        assert running is not None
        self.until(lambda: running.poll() is not None, may_end=True)
        assert running.returncode is not None
        return running.returncode

    def process(self, name: str) -> psutil.Process:
        """Return a process of the run by a part of its command line."""
        assert self._running is not None
        return found(psutil.Process(self._running.pid).children(recursive=True), name)

    def kill(self) -> None:
        """Kill the command and all that it started, at once."""
        if self._running is None:
            return
        with suppress(psutil.NoSuchProcess):
            started = psutil.Process(self._running.pid)
            for process in [*started.children(recursive=True), started]:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL)
        self._running.wait()


def found(processes: Sequence[psutil.Process], name: str) -> psutil.Process:
    """Return a process by a part of its command line."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            if any(name in word for word in process.cmdline()):
                return process
    raise click.ClickException(f"no process {name} was found")


def step_lines(run: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's metrics."""
    file = run / "metrics.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def done(run: Path) -> int:
    """Return the last step that has metrics."""
    return max((line["step"] for line in step_lines(run)), default=0)


def saved(run: Path) -> int:
    """Return the last step that has a checkpoint."""
    newest = run / "checkpoints" / "latest_checkpointed_iteration.txt"
    return int(newest.read_text()) if newest.exists() else 0


def judged(run: Path, steps: int, rows_per_step: int) -> dict[str, Any]:
    """Say what is true of a finished run's store: every step once, whole groups, no fault, no task twice."""
    from cleaner_rl.trajectory.store import read

    numbers = [line["step"] for line in step_lines(run)]
    rows = list(read(run / "trajectories"))
    kept = [row for row in rows if row.info.verdict["kept"]]  # type: ignore[index]
    trained = Counter(row.key.step for row in kept)
    tasks = {(row.key.step, row.key.task) for row in rows}
    return {
        "every_step_once": numbers == list(range(1, steps + 1)),
        "whole_groups": set(trained.values()) == {rows_per_step},
        "no_fault_trained_on": all(row.usable and row.reward is not None for row in kept),
        "no_task_twice": max(Counter(task for _, task in tasks).values()) == 1,
    }

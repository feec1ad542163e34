"""Does runs, some at a time, each worker on a core of its own. The queue can be killed at any time and goes on.

A run that is finished is a line in the file of its environment. One that was broken off goes on from its last
checkpoint. One that fails is named at the end, and the others go on.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.lab.child import end_with
from benchmarks.lab.environments import lab_folder
from benchmarks.lab.local.on_verl import finished_on_verl
from benchmarks.lab.local.runs import WorldRun, finished
from benchmarks.lab.local.worlds import World

RESULTS = Path(__file__).parents[2] / "results" / "lab" / "worlds"
ON_VERL = RESULTS / "verl"
LONGER = RESULTS / "longer"
"""Of runs with more steps, in development worlds."""
SEEDS = RESULTS / "seeds"
"""Of runs with other seeds in a fresh world, to see how much chance does there; no margin counts them."""
EQUAL = RESULTS / "equal"
"""Of methods at equal compute, in development worlds."""
SECOND = RESULTS / "preregistered"
"""Of the second plan."""
Finish: TypeAlias = Callable[[WorldRun, Callable[[str], None], int], dict[str, Any]]
"""Runs to the end, and returns what is kept."""
AHEAD = 8
"""Jobs of which a worker chooses the one that it can do in the least time."""
THREADS = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


@dataclass
class _Worker:
    process: SpawnProcess
    pipe: Connection
    """Takes a run or a world, and gives what is kept of it, or why it failed."""
    job: WorldRun | World | None = None
    world: World | None = None
    """Of its last job: it knows that world's tasks, and how its programs end."""


@dataclass
class Queue:
    """One go at the runs that aren't finished."""

    results: Path = RESULTS
    steps: int = 0
    """Another number of steps, for a trial."""
    until: float = float("inf")
    """By the monotonic clock."""
    say: Callable[[str], None] = print
    on_verl: bool = False
    failed: list[str] = field(default_factory=list)

    def work(self, runs: Sequence[WorldRun], jobs: int) -> None:
        """Do all that isn't done yet, in order: first the worlds, because runs share their cold starts."""
        done = {_key(each) for each in read(self.results)}
        left = [run for run in runs if run.key not in done]
        first = {place: run.world for run in reversed(left) if not (place := run.world.model).exists()}
        os.environ.update(THREADS)
        workers = [_started(self.on_verl) for _ in range(jobs)]
        try:
            self._all(workers, list(first.values()))
            self._all(workers, left)
        finally:
            for worker in workers:
                worker.process.kill()
                worker.process.join()

    def _all(self, workers: Sequence[_Worker], jobs: Sequence[WorldRun | World]) -> None:
        waiting = list(jobs)
        while time.monotonic() < self.until:
            for worker in workers:
                if worker.job is None and waiting:
                    worker.job = best_for(worker.world, waiting, [other.world for other in workers if other.job])
                    worker.world = _world(worker.job)
                    waiting.remove(worker.job)
                    worker.pipe.send((worker.job, self.steps))
            busy = [worker for worker in workers if worker.job is not None]
            if not busy:
                return
            ready = wait([worker.pipe for worker in busy], timeout=1.0)
            for worker in busy:
                if worker.pipe in ready:
                    self._take(worker)

    def _take(self, worker: _Worker) -> None:
        job = worker.job
        assert job is not None
        worker.job = None
        record, error = worker.pipe.recv()
        if error:
            self.failed.append(job.name)
            self.say(f"{job.name}: failed: {error}")
        elif isinstance(job, WorldRun):
            write(record, self.results)
            self.say(f"{job.name}: accuracy {record['test']['accuracy']:.3f}")
        else:
            self.say(f"{job.name}: its cold start is made")


def best_for(last: World | None, jobs: Sequence[WorldRun | World], taken: Sequence[World | None]) -> WorldRun | World:
    """Choose among the next jobs one in the worker's last world, else one in a world that no other worker is in."""
    return min(jobs[:AHEAD], key=lambda job: (_world(job) != last, _world(job) in taken))


def _world(job: WorldRun | World) -> World:
    return job if isinstance(job, World) else job.world


def _started(on_verl: bool) -> _Worker:
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(os.getpid(), theirs, finished_on_verl if on_verl else finished))
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _serve(parent: int, pipe: Connection, finish: Finish) -> None:
    """Do jobs until the queue ends."""
    end_with(parent, by=signal.SIGKILL)  # background jobs of a shell ignore an interrupt
    while True:
        job, steps = pipe.recv()
        try:
            _world(job).make()
            pipe.send((_logged(job, steps, finish) if isinstance(job, WorldRun) else None, ""))
        except Exception as error:  # the queue names it and goes on
            pipe.send((None, f"{type(error).__name__}: {error}"))


def _logged(run: WorldRun, steps: int, finish: Finish) -> dict[str, Any]:
    log = lab_folder() / "worlds" / f"{run.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as file:
        return finish(run, lambda words: print(words, file=file, flush=True), steps)


def read(results: Path = RESULTS) -> list[dict[str, Any]]:
    """Read the lines of all finished runs."""
    return [json.loads(line) for file in sorted(results.glob("*.jsonl")) for line in file.read_text().splitlines()]


def _key(line: Mapping[str, Any]) -> tuple[object, ...]:
    """Return the key of a line's run; the first runs had their world's number as seed, and didn't keep it."""
    return (line["environment"], line["world"], line["method"], line["rate"], line.get("seed", line["world"]))


def write(record: dict[str, Any], results: Path) -> None:
    """Append the line of a run."""
    results.mkdir(parents=True, exist_ok=True)
    with (results / f"{record['environment']}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")

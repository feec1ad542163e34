"""Runs a plan: unit by unit, here or in processes, so that it can be killed at any moment and gone on with.

    OUT/plan.json       the inputs and the options; a run goes on only with the same ones
    OUT/store, sft, same    what the job writes, in parts named after their units
    OUT/units/000012.json   the summary of a unit, written when all its parts are in place

A unit without its summary is done again. Its parts have the same names and the same content, and replace what the
first try left; so no trajectory is lost or doubled."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cleaner_rl.cli.replay_settings import Replaying
from cleaner_rl.purify.logs.places import below, find, is_remote, open_file, put
from cleaner_rl.purify.logs.plans import PLAN, UNITS, Plan
from cleaner_rl.purify.logs.summary import Summary
from cleaner_rl.purify.logs.work import Job, Unit, run_unit
from cleaner_rl.trajectory.store.files import BusyError, only_writer

UNFINISHED, LOCK = ".unfinished", ".lock"
AHEAD = 2
"""Units that wait for each process."""
OBJECTS = 100_000
"""After so many new ones, those in cycles are looked for."""


class OtherRunError(Exception):
    """The output folder holds another run's results."""


@dataclass(frozen=True, slots=True)
class Task:
    """A unit to do, with all that a process needs for it."""

    unit: Unit
    job: Job
    out: str
    replaying: Replaying | None = None
    chosen: Mapping[int, Mapping[str, Any]] | None = None


def do(task: Task) -> Summary:
    """Do a unit and put its parts in place; the summary comes last."""
    with ExitStack() as stack:
        stack.enter_context(_seldom_collecting())
        if is_remote(task.out):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        else:
            # On the file system of the output, so that parts are moved and not copied.
            folder = Path(task.out) / UNFINISHED / f"{task.unit.number:06}-{os.getpid()}"
            folder.mkdir(parents=True)
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        summary = Summary()
        check = None
        if task.replaying is not None:
            from cleaner_rl.cli.replaying import checker

            check = checker(task.replaying, summary)
        summary += run_unit(task.unit, task.job, folder, check, task.chosen)
        for file, name in _parts(folder, task.unit.number):
            put(file, below(task.out, name))
        marker = folder / "summary.json"
        marker.write_text(json.dumps(summary.as_json()))
        put(marker, below(task.out, f"{UNITS}/{task.unit.number:06}.json"))
    return summary


def run(tasks: list[Task], jobs: int, done: Callable[[Summary], None]) -> None:
    """Do the tasks, in this process or in several."""
    if jobs == 1:
        for task in tasks:
            done(do(task))
        return
    # A fresh interpreter each: a forked one would share the threads' locks of this one.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(tasks)) or 1, mp_context=context) as executor:
        waiting: set[Future[Summary]] = set()
        for task in tasks:
            waiting.add(executor.submit(do, task))
            if len(waiting) >= jobs * (1 + AHEAD):
                finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for each in finished:
                    done(each.result())
        for each in waiting:
            done(each.result())


@contextmanager
def _seldom_collecting() -> Iterator[None]:
    """Python looks for cycles after every 700 new objects. A log makes hundreds and hardly a cycle: with the usual
    settings a fifth of the time would go into that."""
    usual = gc.get_threshold()
    gc.set_threshold(OBJECTS, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)


@contextmanager
def alone(out: str) -> Iterator[None]:
    """Hold a local output folder; raises `OtherRunError` if another process does."""
    if is_remote(out):
        yield
        return
    try:
        with only_writer(Path(_made(out)) / LOCK):
            yield
    except BusyError as error:
        raise OtherRunError(str(error)) from None


def begin(out: str, plan: Plan, options: Mapping[str, Any]) -> dict[int, Summary]:
    """Make the output folder, or find what a run that was broken off has done in it."""
    wanted = json.dumps({"options": options, **plan.as_json()}, indent=1)
    known = {each.name: each.uri for each in _found(out)}
    if PLAN in known:
        with closing(open_file(known[PLAN])) as file:
            if file.read().decode() != wanted:
                raise OtherRunError(f"{out} holds the results of other inputs or options; choose another folder")
    elif known:
        raise OtherRunError(f"{out} holds other files; choose a folder of its own for the output")
    else:
        with tempfile.TemporaryDirectory(dir=None if is_remote(out) else _made(below(out, UNFINISHED))) as folder:
            (file_path := Path(folder) / PLAN).write_text(wanted)
            put(file_path, below(out, PLAN))
    if not is_remote(out):
        shutil.rmtree(Path(out) / UNFINISHED, ignore_errors=True)
    return dict(_done(known))


def _made(out: str) -> str:
    Path(out).mkdir(parents=True, exist_ok=True)
    return out


def _found(out: str) -> list[Any]:
    try:
        return list(find(out))
    except FileNotFoundError:
        return []


def _done(known: Mapping[str, str]) -> Iterator[tuple[int, Summary]]:
    for name, uri in known.items():
        folder, _, file_name = name.rpartition("/")
        if folder == UNITS:
            with closing(open_file(uri)) as file:
                yield int(file_name.partition(".")[0]), Summary.of_json(json.load(file))


def _parts(folder: Path, unit: int) -> Iterator[tuple[Path, str]]:
    """The files of a unit, and their names below the output."""
    for index, file in enumerate(sorted((folder / "store").rglob("*.parquet"))):
        yield file, f"{file.parent.relative_to(folder)}/part-{unit:06}-{index:03}.parquet"
    for file in sorted((folder / "sft").rglob("part.*")):
        yield file, f"{file.parent.relative_to(folder)}/part-{unit:06}{file.suffix}"
    for file in sorted((folder / "same").rglob("*")):
        if file.is_file():
            yield file, str(file.relative_to(folder))

"""Runs a plan unit by unit, in this process or in several, so that it can be killed at any moment and go on later.

    OUT/plan.json       the inputs and the settings; a run goes on only with the same ones
    OUT/store, sft, distill, same    what the job writes, in parts named after their units
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
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cleaner_rl.logs.containers import PurifyError
from cleaner_rl.logs.places import below, find, is_remote, open_file, put
from cleaner_rl.logs.plans import PLAN, UNITS, LogPlan, differences
from cleaner_rl.logs.row_files import CARD
from cleaner_rl.logs.summary import PurifySummary
from cleaner_rl.logs.work import Check, LogSettings, Unit, run_unit
from cleaner_rl.trajectory.store import BusyError, only_writer

UNFINISHED, LOCK = ".unfinished", ".lock"
SHOWN = 5
"""Differences that an error names."""
AHEAD = 2
"""Units that wait for each process."""
OBJECTS = 100_000
"""After so many new ones, those in cycles are looked for."""


class OtherRunError(PurifyError):
    """The output folder holds other results, or another process writes to it."""


class WorkerKilledError(PurifyError):
    """A process was killed, perhaps because memory ran out. What is done is kept."""


@dataclass(frozen=True, slots=True)
class UnitTask:
    """A unit to do, with all that a process needs for it."""

    unit: Unit
    settings: LogSettings
    out: str | None
    """Folder for the results. None: nothing is written."""
    check: Check | None = None
    chosen: Mapping[int, Mapping[str, Any]] | None = None


def do(task: UnitTask) -> PurifySummary:
    """Do a unit and put its parts in place, if they are wanted; the summary comes last."""
    with ExitStack() as stack:
        stack.enter_context(_seldom_collecting())
        if task.out is None:
            return run_unit(task.unit, task.settings, None, task.check, task.chosen)
        if is_remote(task.out):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        else:
            # On the file system of the output, so that parts are moved and not copied.
            folder = Path(task.out) / UNFINISHED / f"{task.unit.number:06}-{os.getpid()}"
            folder.mkdir(parents=True)
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        summary = run_unit(task.unit, task.settings, folder, task.check, task.chosen)
        for file, name in _parts(folder, task.unit.number):
            put(file, below(task.out, name))
        marker = folder / "summary.json"
        marker.write_text(json.dumps(summary.to_json()))
        put(marker, below(task.out, f"{UNITS}/{task.unit.number:06}.json"))
    return summary


def run(tasks: list[UnitTask], jobs: int, done: Callable[[PurifySummary], None]) -> None:
    """Do the tasks, in this process or in several. Raises `WorkerKilledError` if one of these is killed."""
    if jobs == 1:
        for task in tasks:
            done(do(task))
        return
    with workers(min(jobs, len(tasks)) or 1) as executor:
        waiting: set[Future[PurifySummary]] = set()
        for task in tasks:
            waiting.add(executor.submit(do, task))
            if len(waiting) >= jobs * (1 + AHEAD):
                finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for each in finished:
                    done(each.result())
        for each in waiting:
            done(each.result())


@contextmanager
def workers(count: int) -> Iterator[ProcessPoolExecutor]:
    """Run this many processes. Raises `WorkerKilledError` if one of them is killed."""
    # A fresh interpreter each: a forked one would share the threads' locks of this one.
    try:
        with ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn")) as executor:
            yield executor
    except BrokenProcessPool:
        raise WorkerKilledError("a process was killed, perhaps because memory ran out; use fewer --jobs") from None


@contextmanager
def _seldom_collecting() -> Iterator[None]:
    """Make Python look for cycles less often than after every 700 new objects.

    A record makes hundreds of objects and hardly a cycle: with the usual setting a fifth of the time is lost.
    """
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


def begin(out: str, plan: LogPlan, options: Mapping[str, Any]) -> dict[int, PurifySummary]:
    """Make the output folder, or return the summaries of the units that an earlier run has done in it.

    Raises `OtherRunError` if the folder holds the results of other logs or settings. Nothing in it is deleted then.
    """
    wanted = {"options": options, **plan.to_json()}
    known = {each.name: each.uri for each in _found(out)}
    if PLAN in known:
        if differ := differences(_plan_at(known[PLAN]), wanted):
            more = f"; and {len(differ) - SHOWN:,} more differences" if len(differ) > SHOWN else ""
            raise OtherRunError(
                f"{out} holds the results of another run: {'; '.join(differ[:SHOWN])}{more}. "
                "Use the same inputs and options to resume it, or choose another --out"
            )
    elif known:
        raise OtherRunError(f"{out} holds other files; choose another --out, a folder of its own")
    else:
        with tempfile.TemporaryDirectory(dir=None if is_remote(out) else _made(below(out, UNFINISHED))) as folder:
            (file_path := Path(folder) / PLAN).write_text(json.dumps(wanted, indent=1))
            put(file_path, below(out, PLAN))
    if not is_remote(out):
        shutil.rmtree(Path(out) / UNFINISHED, ignore_errors=True)
    return dict(_done(known))


def _plan_at(uri: str) -> dict[str, Any]:
    try:
        with closing(open_file(uri)) as file:
            kept = json.load(file)
    except ValueError:
        kept = None
    if not isinstance(kept, dict):
        raise OtherRunError(f"{uri} can't be read as a plan; choose another --out")
    return kept


def _made(out: str) -> str:
    Path(out).mkdir(parents=True, exist_ok=True)
    return out


def _found(out: str) -> list[Any]:
    try:
        return list(find(out))
    except FileNotFoundError:
        return []


def _done(known: Mapping[str, str]) -> Iterator[tuple[int, PurifySummary]]:
    for name, uri in known.items():
        folder, _, file_name = name.rpartition("/")
        if folder == UNITS:
            with closing(open_file(uri)) as file:
                yield int(file_name.partition(".")[0]), PurifySummary.from_json(json.load(file))


def _parts(folder: Path, unit: int) -> Iterator[tuple[Path, str]]:
    """Return the files of a unit, and their names below the output."""
    for index, file in enumerate(sorted((folder / "store").rglob("*.parquet"))):
        yield file, f"{file.parent.relative_to(folder)}/part-{unit:06}-{index:03}.parquet"
    for rows in ("sft", "distill"):
        for file in sorted((folder / rows).rglob("part.*")):
            yield file, f"{rows}/part-{unit:06}{file.suffix}"
        if (folder / rows / CARD).exists():
            yield folder / rows / CARD, f"{rows}/{CARD}"  # the same of each unit
    for file in sorted((folder / "same").rglob("*")):
        if file.is_file():
            yield file, str(file.relative_to(folder))

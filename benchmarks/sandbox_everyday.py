"""What models really wrote, run as sessions: `python -m benchmarks.sandbox_everyday LOGS --json`.

LOGS is a folder with logs of agents, or with archives of them (`.tar.xz`). The readers of `cleaner_rl.logs` find the
Python and bash calls in them, and each trajectory becomes a session of a node that is served over HTTP. The files and
packages of the agents' own containers are missing, so many calls fail, and nothing is compared with the logs.

Each session is run three times: its failed cells are undone by the session itself (`undone`), they are committed and
then rolled back by the caller (`rolled_back`), and they are left out (`without`). After each failure a digest of the
session's state is taken: names and values, modules, the state of random numbers, the environment, descriptors,
handlers and files, or all that bash says of itself. It must be the one of the session without the failed cells.

- `calls`: cells of the logs that were run, and rollbacks; not the digests.
- `unanswered`: calls without an answer after a minute. `faults`: calls that ended as one, and sessions that were lost
  for no reason of their own.
- `lost_slots`: slots that died, that are in use when nothing runs, or that run no program any more.
- `rollback_differs`: digests that differ in each of two tries, though two sessions without the failed cells agree.
- `unrepeatable`: sessions that could not go on, because a cell failed in a state that can't be kept and their cells
  showed something else when they were run again: random numbers of a thread, a clock.

All sessions take hours. They are run in an order that mixes the logs, `--sessions N` of them at a time, and with
`--save FILE` the command goes on after those in FILE and adds to their figures; so it can also be stopped at any time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Awaitable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from benchmarks import record
from benchmarks.sandbox_nodes import NodeProcess
from cleaner_rl.logs import LogSettings, purify
from cleaner_rl.tools import CallKind
from cleaner_rl.trajectory.store import read
from cleaner_sandbox import (
    Cell,
    CellOutcome,
    Commit,
    Language,
    Limits,
    RollbackDeclinedError,
    RunRequest,
    RunStatus,
    SessionLostError,
    SessionRequest,
)
from cleaner_sandbox.client import RemoteSession, SandboxClient

T = TypeVar("T")
LANGUAGES = {CallKind.PYTHON: Language.PYTHON, CallKind.SHELL: Language.BASH}
LIMITS = Limits(cpu_seconds=3.0, wall_seconds=5.0)
ANSWER_SECONDS = 60.0
FIGURES = ("sessions", "calls", "unanswered", "faults", "lost_slots", "rollback_differs")
PART = 40
"""Sessions whose figures are saved together; each part has a node of its own."""
KEPT = 20
"""Problems that are shown in full."""
DIGESTS = {
    Language.PYTHON: r"""
def digest(state):
    import decimal, hashlib, os, random, re, signal, sys, threading, types, warnings
    def described(value, depth):
        kind = type(value).__qualname__
        if isinstance(value, types.ModuleType):
            return value.__name__
        if isinstance(value, types.FunctionType):
            return kind, value.__code__.co_code, described(value.__defaults__, depth - 1)
        if depth and isinstance(value, dict):
            return kind, [(described(k, depth - 1), described(v, depth - 1)) for k, v in list(value.items())[:1000]]
        if depth and isinstance(value, (list, tuple, set, frozenset)):
            return kind, [described(each, depth - 1) for each in list(value)[:1000]]
        try:
            inner = sorted(vars(value).items()) if depth and not isinstance(value, type) else []
        except Exception:
            inner = []
        shown = re.sub("0x[0-9a-f]+", "", repr(value)[:10_000])
        return kind, shown, [(name, described(each, depth - 1)) for name, each in inner]
    numpy = sys.modules.get("numpy")
    files = []
    for top in ("/box/run/work", "/box/run/tmp", "/box/run/shm"):
        for folder, folders, names in os.walk(top):
            folders.sort()
            for name in sorted(names):
                path = os.path.join(folder, name)
                mode = os.lstat(path).st_mode
                content = os.readlink(path) if os.path.islink(path) else ""
                if os.path.isfile(path) and not content:
                    with open(path, "rb") as file:
                        content = hashlib.sha256(file.read()).hexdigest()
                files.append((path, mode, content))
    descriptors = []
    for number in range(64):
        try:
            descriptors.append((number, os.fstat(number).st_mode, os.lseek(number, 0, 1) if number > 4 else 0))
        except OSError:
            pass
    mask = os.umask(0)
    os.umask(mask)
    parts = {
        "names": [(name, described(value, 4)) for name, value in sorted(state.items())],
        "modules": sorted(sys.modules),
        "random": [random.getstate(), str(numpy.random.get_state()) if numpy else ""],
        "process": [os.getcwd(), sorted(os.environ.items()), sys.path, sys.argv, mask, sys.getrecursionlimit()],
        "handlers": [str(signal.getsignal(number)) for number in signal.valid_signals()],
        "threads": [thread.name for thread in threading.enumerate()],
        "settings": [str(decimal.getcontext()), str(warnings.filters)],
        "descriptors": descriptors,
        "files": files,
    }
    for name, part in parts.items():
        print(name, hashlib.sha256(repr(part).encode(errors="replace")).hexdigest()[:16])
digest(state)
""",
    Language.BASH: r"""
volatile='BASH[A-Z_]*|COMP_[A-Z]*|DIRSTACK|EPOCH[A-Z]*|FUNCNAME|LINENO|PIPESTATUS|PPID|RANDOM|SECONDS|SRANDOM|_'
{ declare -p | grep -vE "^declare -[^ ]* ($volatile|volatile)(=|$)"; declare -f; alias; shopt; set +o; umask; pwd; }
echo "$# $* $RANDOM"
find /box/run/work /box/run/tmp /box/run/shm -printf '%M %p %l\n' | sort
find /box/run/work /box/run/tmp /box/run/shm -type f -print0 | sort -z | xargs -0r sha256sum
""",
}
"""What shows a session's state. It is run as a cell that is never committed, and changes nothing."""
# The cells may have given the names of built-in functions to something else.
DIGESTS[Language.PYTHON] = f"__import__('builtins').exec({DIGESTS[Language.PYTHON]!r}, {{'state': globals()}})"


class Script(NamedTuple):
    """The calls of one trajectory in one language."""

    language: Language
    cells: tuple[str, ...]


@dataclass
class Pass:
    """One session."""

    kept: tuple[int, ...] = ()
    """Which cells are in its state."""
    digests: dict[tuple[int, ...], str] = field(default_factory=dict)
    """Its state after a failure, by the cells that were in it."""


class TroubleError(Exception):
    """A session can't go on."""


def scripts(logs: Path) -> list[Script]:
    """Return the sessions of the Python and bash calls in a folder of logs."""
    with tempfile.TemporaryDirectory() as folder:
        for archive in sorted(logs.glob("*.tar.xz")):
            with tarfile.open(archive) as opened:
                opened.extractall(Path(folder) / "logs", filter="data")
        unpacked = Path(folder) / "logs"
        purify(unpacked if unpacked.exists() else logs, Path(folder) / "read", LogSettings(repair=None))
        return list(_scripts(Path(folder) / "read" / "store"))


def _scripts(store: Path) -> Iterator[Script]:
    for trajectory in read(store):
        calls = [call for turn in trajectory.turns for call in turn.calls]
        for kind, language in LANGUAGES.items():
            cells = tuple(call.code for call in calls if call.kind is kind and call.code)
            if cells:
                yield Script(language, cells)


class Everyday:
    """Runs sessions on a node, and counts."""

    def __init__(self, sandbox: SandboxClient) -> None:
        self._sandbox = sandbox
        self.counts: Counter[str] = Counter()
        self.statuses: Counter[str] = Counter()
        self.problems: list[dict[str, object]] = []

    async def session(self, script: Script) -> None:
        """Run a session in all three ways, and compare."""
        self.counts["sessions"] += 1
        undone = await self._pass(script, range(len(script.cells)), commit=Commit.ON_SUCCESS)
        rolled_back = await self._pass(script, range(len(script.cells)), commit=Commit.ALWAYS)
        for commit, seen in ((Commit.ON_SUCCESS, undone), (Commit.ALWAYS, rolled_back)):
            without = await self._without(script, seen)
            differs = [cells for cells, digest in without.items() if digest != seen.digests[cells]]
            self.counts["compared"] += len(without)
            if differs:
                await self._differ(script, commit, seen, without, differs)

    async def _without(self, script: Script, seen: Pass) -> dict[tuple[int, ...], str]:
        """The digests of a session without the cells that failed."""
        wanted = set(seen.digests)
        if not wanted:
            return {}
        again = await self._pass(script, seen.kept, commit=Commit.ON_SUCCESS, wanted=wanted)
        return {cells: digest for cells, digest in again.digests.items() if cells in wanted}

    async def _differ(
        self,
        script: Script,
        commit: Commit,
        seen: Pass,
        without: dict[tuple[int, ...], str],
        differs: Sequence[tuple[int, ...]],
    ) -> None:
        once_more = await self._without(script, seen)
        again = await self._pass(script, range(len(script.cells)), commit=commit)
        for cells in differs:
            found = again.digests.get(cells)
            if found is None or once_more.get(cells) != without[cells] or found == without[cells]:
                self.counts["varies"] += 1
                continue
            self.counts["rollback_differs"] += 1
            self._note("differs", script, commit=commit, kept=cells, found=found, without=without[cells])

    async def _pass(
        self, script: Script, cells: Sequence[int], commit: Commit, wanted: Collection[tuple[int, ...]] = ()
    ) -> Pass:
        """Run these cells of a session; digests are taken after failures, and where they are `wanted`."""
        seen = Pass()
        digests = seen.digests
        try:
            session = await self._answer(
                script, self._sandbox.open_session(SessionRequest(None, LIMITS, language=script.language))
            )
            try:
                if () in wanted:
                    digests[()] = await self._digest(script, session)
                for number in cells:
                    before = session.checkpoint
                    self.counts["calls"] += 1
                    outcome = await self._run(script, session, Cell(script.cells[number], commit=commit))
                    worked = outcome.result.status is RunStatus.OK
                    if not worked and outcome.committed:
                        self.counts["calls"] += 1
                        await self._answer(script, session.rollback(before))
                    if worked:
                        seen.kept += (number,)
                    if seen.kept not in digests and (seen.kept in wanted if wanted else not worked):
                        digests[seen.kept] = await self._digest(script, session)
            finally:
                await session.close()
        except TroubleError:
            pass
        return seen

    async def _digest(self, script: Script, session: RemoteSession) -> str:
        cell = Cell(DIGESTS[script.language], commit=Commit.NEVER, echo_last_expression=False)
        result = (await self._run(script, session, cell)).result
        if result.status is not RunStatus.OK:
            self.counts["no_digest"] += 1
            self._note("no digest", script, why=str(result))
        return result.output

    async def _run(self, script: Script, session: RemoteSession, cell: Cell) -> CellOutcome:
        outcome = await self._answer(script, session.run(cell), cell.code)
        self.statuses[outcome.result.status] += 1
        if outcome.result.status is RunStatus.FAULT:
            self.counts["faults"] += 1
            self._note("fault", script, cell=cell.code, why=outcome.result.explanation)
            raise TroubleError
        if outcome.unrepeatable:
            self.counts["unrepeatable"] += 1
            raise TroubleError
        return outcome

    async def _answer(self, script: Script, call: Awaitable[T], code: str = "") -> T:
        try:
            return await asyncio.wait_for(call, ANSWER_SECONDS)
        except TimeoutError:
            self.counts["unanswered"] += 1
            self._note("unanswered", script, cell=code)
        except SessionLostError as error:
            self.counts["faults"] += 1
            self._note("lost", script, cell=code, why=str(error))
        except RollbackDeclinedError:
            self.counts["unrepeatable"] += 1
        raise TroubleError

    def _note(self, problem: str, script: Script, **more: object) -> None:
        if len(self.problems) < KEPT:
            self.problems.append({"problem": problem, "language": script.language, "cells": script.cells, **more})


async def _lost_slots(sandbox: SandboxClient, node: NodeProcess) -> int:
    """How many of an idle node's slots died, are in use, or run no program."""
    health = node.health()
    each = [sandbox.run(RunRequest("import time; time.sleep(0.2); print(6 * 7)")) for _ in range(node.slots)]
    ran = await asyncio.wait_for(asyncio.gather(*each), ANSWER_SECONDS)
    wrong = sum(outcome.result.output != "42\n" for outcome in ran)
    return int(health["slot_deaths"] + health["running"] + wrong)


async def measure(found: Sequence[Script], together: int) -> dict[str, Any]:
    """Run sessions on a node of their own, so many at a time."""
    with NodeProcess(slots=together, options=("--sessions", str(4 * together))) as node:
        async with SandboxClient(node.url) as sandbox:
            everyday = Everyday(sandbox)
            left = iter(found)

            async def work() -> None:
                for script in left:
                    await everyday.session(script)

            await asyncio.gather(*(work() for _ in range(together)))
            counts = everyday.counts
            counts["lost_slots"] = await _lost_slots(sandbox, node)
    logged = Counter[str]()
    for script in found:
        logged[script.language] += len(script.cells)
    return {
        **{name: counts[name] for name in (*FIGURES, "compared", "varies", "no_digest", "unrepeatable")},
        "logged": logged,
        "statuses": everyday.statuses,
        "problems": everyday.problems,
    }


def joined(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The figures of two parts together."""
    counted = {name: dict(Counter(one[name]) + Counter(other[name])) for name in ("logged", "statuses")}
    numbers = {name: one[name] + number for name, number in other.items() if isinstance(number, int)}
    return {**numbers, **counted, "problems": (one["problems"] + other["problems"])[:KEPT]}


def saved(file: Path | None, settings: dict[str, object]) -> dict[str, Any] | None:
    """The figures in a file, to be added to. Raises `SystemExit` if they are of another commit or order."""
    if file is None or not file.exists():
        return None
    kept = json.loads(file.read_text())
    if (kept["commit"], kept["settings"]) != (record.commit(), settings):
        sys.exit(f"{file} is of commit {kept['commit']} with {kept['settings']}: save to another file, or delete it")
    figures: dict[str, Any] = kept["figures"]
    return figures


def main() -> None:
    """Run, and print one JSON object; exits with 1 if anything was lost or differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", type=Path, help="folder with the logs")
    parser.add_argument("--sessions", type=int, help="run so many sessions, not all")
    parser.add_argument("--together", type=int, default=4, help="sessions at the same time")
    parser.add_argument("--json", action="store_true", help="on one line")
    parser.add_argument("--save", type=Path, help="keep the figures in this file, with commit and machine; go on there")
    options = parser.parse_args()
    found = scripts(options.logs)
    random.Random(0).shuffle(found)
    settings: dict[str, object] = {"logs": options.logs.name, "found": len(found), "together": options.together}
    figures = saved(options.save, settings)
    begin = 0 if figures is None else figures["sessions"]
    end = len(found) if options.sessions is None else min(len(found), begin + options.sessions)
    for at in range(begin, end, PART):
        part = asyncio.run(measure(found[at : min(end, at + PART)], options.together))
        figures = part if figures is None else joined(figures, part)
        if options.save:
            record.save(options.save, figures, settings)
    if figures is None:
        parser.error("there is no session to run")
    print(json.dumps(figures, indent=None if options.json else 2))
    sys.exit(any(figures[name] for name in FIGURES[2:]))


if __name__ == "__main__":
    main()

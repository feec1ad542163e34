"""The index: a line for each trajectory of a store, in a DuckDB database in the user's cache.

A store's columns nest, and its texts and tokens are gigabytes; to sort a million rollouts by reward one must not read
them. So each file is read once and summarised (`lines`), by several processes if there is much to do, and again only
if it changed. Rows can be asked for while others are still being made, the first ones after a few hundred were read.
A file whose lines aren't all there yet has the size -1: should the viewer end now, the next one begins it anew.

Limits: the first look at a large store reads all of it. A second viewer of the same store, while the first one runs,
can't share the database: it makes its own in memory.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from threading import Event, Lock
from types import MappingProxyType, TracebackType
from typing import Any

import duckdb
import pyarrow as pa

from cleaner_rl.trajectory.store import StoreError
from cleaner_rl.view.lines import COLUMNS, lines_of, tables_of
from cleaner_rl.view.sources import Sources, StoreFile

VERSION = 6
"""Of the tables below and of what their lines mean; a database of another version is made anew."""
SEVERAL = 4 * 2**20
"""Bytes from which on processes pay for their start: some seconds of work."""
POLITE = 10
"""By how much these processes step back: a page that is asked for comes first."""
UNFINISHED = -1
RUN_ID = """CASE WHEN $store = '' THEN run WHEN run = '' OR run = regexp_extract($store, '[^/]*$') THEN $store
    ELSE $store || '/' || run END || CASE WHEN phase = 'evaluation' THEN ' (evaluation)' ELSE '' END"""
"""A run's name, with its store's folder in front where there may be several. Its evaluation is shown as its own run."""
# A number is never given twice: what was found in a file that is gone can't point into another one.
FILES = """CREATE SEQUENCE numbers;
CREATE TABLE files (number INTEGER PRIMARY KEY DEFAULT nextval('numbers'),
    name VARCHAR, size BIGINT, modified BIGINT, problem VARCHAR)"""
TRAJECTORIES = "CREATE TABLE trajectories AS SELECT ''::VARCHAR AS run_id, 0::INTEGER AS file, * FROM columns"


class Index:
    """The lines of everything that was found at a path; a context manager."""

    def __init__(self, sources: Sources, folder: Path | None = None) -> None:
        """`folder` holds the databases; by default the user's cache."""
        self.shared = True
        """False if another viewer has the database, and this one is in memory."""
        self._database = _open(_place(sources.path, folder), self)
        self._writing = Lock()
        self._stopping = Event()
        self.begun = Event()
        """Set once there is something to see: all of a small store, the first lines of a large one."""

    def __enter__(self) -> Index:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopping.set()
        with self._writing:
            self._database.close()

    def rows(
        self, query: str, parameters: Sequence[object] = (), tables: Mapping[str, pa.Table] = MappingProxyType({})
    ) -> list[dict[str, Any]]:
        """Ask, with further tables if need be; from any thread."""
        with self._database.cursor() as cursor:
            for name, table in tables.items():
                cursor.register(name, table)
            cursor.execute(query, list(parameters))
            names = [column[0] for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def run_id(self, store: str, run: str) -> str:
        """Return the name of a run whose store is in this folder."""
        with self._database.cursor() as cursor:
            asked = cursor.execute(
                f"SELECT {RUN_ID} FROM (SELECT $run AS run, 'training' AS phase)", {"store": store, "run": run}
            )
            ((found,),) = asked.fetchall()
            return str(found)

    def stale(self, sources: Sources) -> list[StoreFile]:
        """Files that aren't in it yet, or changed."""
        known = {(row["name"], row["size"], row["modified"]) for row in self.rows("SELECT * FROM files")}
        return [file for file in sources.files if (file.name, file.size, file.modified) not in known]

    def update(self, sources: Sources, done: Callable[[StoreFile], None] = lambda _: None) -> None:
        """Read what is new and forget what is gone; `done` is called with each file. While one thread does
        this, others don't wait for it."""
        if not self._writing.acquire(blocking=False):
            return
        try:
            self._forget(sources)
            stale = self.stale(sources)
            much = sum(file.size for file in stale) >= SEVERAL
            for file, tables in _summaries(sources.root, stale, much, self._stopping):
                for _ in self._add(file, tables):
                    if much:
                        self.begun.set()
                done(file)
        finally:
            self.begun.set()
            self._writing.release()

    def _forget(self, sources: Sources) -> None:
        present = {(file.name, file.size, file.modified) for file in sources.files}
        gone = [
            row["number"]
            for row in self.rows("SELECT * FROM files")
            if (row["name"], row["size"], row["modified"]) not in present
        ]
        with self._database.cursor() as cursor:
            for table, column in (("trajectories", "file"), ("files", "number")):
                cursor.execute(f"DELETE FROM {table} WHERE {column} IN (SELECT unnest(?::INTEGER[]))", [gone])

    def _add(self, file: StoreFile, tables: Iterable[pa.Table]) -> Iterator[None]:
        """Add a file, table by table."""
        with self._database.cursor() as cursor:
            ((number,),) = cursor.execute(
                "INSERT INTO files (name, size, modified) VALUES (?, ?, 0) RETURNING number", [file.name, UNFINISHED]
            ).fetchall()
            problem = None
            try:
                for table in tables:
                    cursor.register("lines", table)
                    cursor.execute(
                        f"INSERT INTO trajectories SELECT {RUN_ID}, $number, * FROM lines",
                        {"store": file.store, "number": number},
                    )
                    yield
            except Exception as error:  # whatever a file holds, the others are read
                said = str(error) or type(error).__name__
                problem = said if isinstance(error, StoreError) else f"{file.name} can't be read: {said}"
                cursor.execute("DELETE FROM trajectories WHERE file = ?", [number])
            cursor.execute(
                "UPDATE files SET size = ?, modified = ?, problem = ? WHERE number = ?",
                [file.size, file.modified, problem, number],
            )


def _summaries(
    root: Path, files: Sequence[StoreFile], much: bool, stopping: Event
) -> Iterator[tuple[StoreFile, Iterable[pa.Table]]]:
    """Each file with its lines, which raise what is wrong with it; until told to stop."""
    for file in files[:1]:
        yield file, tables_of(root / file.name)  # as they are made: something is wanted soon
    others = files[1:]
    if not much:
        for file in others:
            yield file, _one(partial(lines_of, root / file.name))
        return
    again = []
    with _processes(os.cpu_count()) as pool:
        tasks = {}
        for file in others:
            try:
                tasks[pool.submit(lines_of, root / file.name)] = file
            except BrokenProcessPool:
                again.append(file)
        for task in as_completed(tasks):
            if stopping.is_set():
                pool.shutdown(cancel_futures=True)
                return
            if isinstance(task.exception(), BrokenProcessPool):
                again.append(tasks[task])
            else:
                yield tasks[task], _one(task.result)
    # A process was killed, and with it went what the others had before them. Whose doing that was, shows alone.
    for file in again:
        if stopping.is_set():
            return
        yield file, _one(partial(_alone, root / file.name))


def _one(make: Callable[[], pa.Table]) -> Iterator[pa.Table]:
    yield make()


def _alone(path: Path) -> pa.Table:
    """A file's lines, from a process that reads nothing else."""
    with _processes(1) as pool:
        try:
            return pool.submit(lines_of, path).result()
        except BrokenProcessPool:
            raise StoreError(
                f"{path} can't be read: the process that read it was killed, perhaps for its memory"
            ) from None


def _processes(count: int | None) -> ProcessPoolExecutor:
    # Not forked: DuckDB has threads.
    return ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _step_back)


def _step_back() -> None:
    """In a process that indexes. An interrupt is the parent's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(POLITE)


def _place(viewed: Path, folder: Path | None) -> Path:
    if folder is None:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cleaner-rl" / "view"
    name = hashlib.sha256(str(viewed.resolve()).encode(errors="surrogateescape")).hexdigest()[:16]
    return folder / f"{name}-{VERSION}.duckdb"


def _open(path: Path, index: Index) -> duckdb.DuckDBPyConnection:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        database = duckdb.connect(str(path))
    except (duckdb.IOException, OSError):  # another viewer has it, or the cache can't be written to
        index.shared = False
        database = duckdb.connect()
    # The index asks for nothing outside of itself, and neither may a query.
    database.execute("SET enable_external_access = false")
    if not database.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = 'files'").fetchall():
        database.execute(FILES)
        database.register("columns", pa.Table.from_batches([], COLUMNS))
        database.execute(TRAJECTORIES)
        database.unregister("columns")
    return database

"""SQL over DuckDB as a tool: a query in, a table out. The second tool that comes with the package, as a plug-in.

    read-only  the file is read where it is; each call in a connection of its own, and nothing stays
    writable   each rollout has a copy of its own in memory, with a transaction a turn: to go back is to roll back

How a query fails: its own `ERROR` (syntax, an unknown table or column, a wrong type, a broken constraint), `TIMEOUT`,
`MEMORY`, `OUTPUT_LIMIT` (more rows than are shown: the first of them are), `REFUSED` (a statement that isn't allowed,
or one that reaches for files or the network). What breaks in DuckDB itself is a fault.

Limits: it runs in threads of this process, so a crash of DuckDB is one of ours; queries get no files, no network, no
extensions and no settings. Time is wall time. A query that asks for the time or for random numbers can't be replayed.
A sequence's numbers don't go back. A copy in memory costs what the database weighs, for each rollout that is open.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

try:
    import duckdb
except ImportError as error:
    raise ImportError("the SQL tool needs DuckDB: pip install 'cleaner-rl[sql]'") from error

from cleaner_rl.rollout.tool_env import ToolSession
from cleaner_rl.tools import ExceptionInfo, Status, ToolCall, ToolResult
from cleaner_rl.trajectory import Key

READS = frozenset({"SELECT"})
"""DESCRIBE, SHOW, SUMMARIZE, VALUES and WITH are SELECT to DuckDB."""
WRITES = READS | {"ALTER", "CREATE", "DELETE", "DROP", "INSERT", "MERGE_INTO", "UPDATE"}
FAULTS = (duckdb.InternalException, duckdb.FatalException, duckdb.IOException, duckdb.ConnectionException)
LINE = re.compile(r"\n+LINE (\d+): ")
AGAIN = 0.05
"""Seconds between two interrupts: one that comes between two statements is lost."""


class SqlTool:
    """A database that a model may ask. Made with the prompt's `[tool.options]`."""

    limits = None

    def __init__(
        self,
        database: str = "",
        setup: str = "",
        writable: bool = False,
        seconds: float = 10.0,
        rows: int = 100,
        memory_mb: int = 512,
    ) -> None:
        """A file of DuckDB's, and SQL that is run before a rollout; at least one of them."""
        if not database and not setup:
            raise ValueError('there is no database: write `database = "FILE"` or `setup = "SQL"` under [tool.options]')
        if database and not Path(database).is_file():
            raise ValueError(f"there is no database file {database}")
        if setup and database and not writable:
            raise ValueError(
                "setup would write to a database that is only read; set `writable = true`, or leave it out"
            )
        self.stateful = writable
        self._database, self._setup = database, setup
        self._seconds, self._rows, self._memory_mb = seconds, rows, memory_mb
        self._connect().close()  # a setup that is wrong is told now, not in the middle of a run

    @asynccontextmanager
    async def open(self, key: Key) -> AsyncIterator[ToolSession]:  # noqa: ARG002 - every rollout begins alike
        """The database of one rollout."""
        connection = await asyncio.to_thread(self._connect)
        try:
            yield _Writing(self, connection) if self.stateful else _Reading(self, connection)
        finally:
            connection.close()

    async def run(self, cursor: Any, call: ToolCall) -> ToolResult:
        """What a call gives. A rollout that is cancelled interrupts its query and waits for it to end."""
        query = _Query(cursor, self._seconds)
        work = asyncio.ensure_future(asyncio.to_thread(self._answer, query, call.code))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            query.stop()
            with suppress(asyncio.CancelledError):
                await work
            raise

    def _connect(self) -> Any:
        settings: Any = {"threads": 1, "memory_limit": f"{self._memory_mb}MB", "temp_directory": ""}
        connection = duckdb.connect(":memory:", config=settings)
        if self._database:
            file = self._database.replace("'", "''")
            connection.execute(f"ATTACH '{file}' AS source (READ_ONLY)")
        if self._database and self.stateful:
            connection.execute("COPY FROM DATABASE source TO memory; DETACH source")
        if self._setup:
            connection.execute(self._setup)
        for setting in ("python_enable_replacements", "autoload_known_extensions", "enable_external_access"):
            connection.execute(f"SET {setting} = false")
        connection.execute("SET lock_configuration = true")
        return connection

    @property
    def home(self) -> str:
        """The catalog that names are looked for in."""
        return "source" if self._database and not self.stateful else "memory"

    def _answer(self, query: _Query, sql: str) -> ToolResult:
        allowed = WRITES if self.stateful else READS
        try:
            statements = duckdb.extract_statements(sql)
            for statement in statements:
                if (kind := statement.type.name) not in allowed:
                    return ToolResult(
                        Status.REFUSED, explanation=f"{kind} is not allowed here; allowed: {_listed(allowed)}."
                    )
            if not statements:
                return ToolResult(Status.ERROR, explanation="There is no statement in the query.")
            with query:
                tables = [query.execute(statement, self._rows) for statement in statements]
        except duckdb.Error as error:
            return self._failure(error, query.late)
        output = "\n".join(text for text, _ in tables)
        if any(cut for _, cut in tables):
            told = f"There are more than {self._rows} rows; only these were shown. Use LIMIT, a filter or an aggregate."
            return ToolResult(Status.OUTPUT_LIMIT, output, explanation=told)
        return ToolResult(Status.OK, output)

    def _failure(self, error: duckdb.Error, late: bool) -> ToolResult:
        words = str(error)
        if late and isinstance(error, duckdb.InterruptException):
            return ToolResult(Status.TIMEOUT, explanation=f"The query was stopped after {self._seconds:g} s.")
        if isinstance(error, duckdb.OutOfMemoryException):
            return ToolResult(Status.MEMORY, explanation=f"The query needs more than {self._memory_mb} MB of memory.")
        if isinstance(error, duckdb.PermissionException):
            return ToolResult(Status.REFUSED, explanation="A query can't reach files, the network or extensions.")
        if isinstance(error, FAULTS):
            return ToolResult(Status.FAULT, explanation=f"DuckDB broke: {words}")
        name, message = type(error).__name__, words.partition(": ")[2]
        place = LINE.search(message)
        said = message[: place.start()] if place else message
        line = int(place[1]) if place else None
        return ToolResult(Status.ERROR, exception=ExceptionInfo(name, said, line, f"{name}: {message}"))


class _Query:
    """One query while it runs, with a thread that interrupts it when its time is over or nobody wants it any more."""

    def __init__(self, cursor: Any, seconds: float) -> None:
        self._cursor, self._seconds = cursor, seconds
        self._wake, self._ended = threading.Event(), threading.Event()
        self.late = False

    def stop(self) -> None:
        self._wake.set()

    def execute(self, statement: Any, rows: int) -> tuple[str, bool]:
        """The table that a statement gives, and whether it was cut."""
        found = self._cursor.execute(statement)
        lines = found.fetchmany(rows + 1)
        if statement.type.name != "SELECT":
            return (f"{_rows(lines[0][0])} changed." if lines else "Done."), False
        shown = [" | ".join(column[0] for column in found.description)]
        shown += [" | ".join(map(_shown, line)) for line in lines[:rows]]
        return "\n".join([*shown, f"({_rows(len(shown) - 1)})"]), len(lines) > rows

    def __enter__(self) -> None:
        threading.Thread(target=self._watch, daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._wake.set()

    def _watch(self) -> None:
        self._wake.wait(self._seconds)
        self.late = not self._ended.is_set()
        while not self._ended.wait(AGAIN):
            self._cursor.interrupt()


class _Reading:
    """Each call in a connection and a read-only transaction of its own."""

    def __init__(self, tool: SqlTool, connection: Any) -> None:
        self._tool, self._connection = tool, connection

    async def run(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """The results of a turn's calls, in their order."""
        return [call.refusal or await self._run(call) for call in calls]

    async def rollback(self) -> None:
        """There is nothing to go back from."""

    async def _run(self, call: ToolCall) -> ToolResult:
        with self._connection.cursor() as cursor:
            cursor.execute(f"USE {self._tool.home}; BEGIN TRANSACTION READ ONLY")
            return await self._tool.run(cursor, call)


class _Writing:
    """A transaction a turn: committed when the next one begins. A call that fails leaves nothing behind."""

    def __init__(self, tool: SqlTool, connection: Any) -> None:
        self._tool, self._connection = tool, connection
        self._open = False

    async def run(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """The results of a turn's calls, in their order. A call after one that failed still runs."""
        if self._open:
            self._connection.execute("COMMIT")
        self._begin()
        results: list[ToolResult] = []
        worked: list[tuple[ToolCall, ToolResult]] = []
        for call in calls:
            result = call.refusal or await self._tool.run(self._connection, call)
            if result.status is Status.OK:
                worked.append((call, result))
            elif call.problem is None and not await self._restore(worked):
                result = ToolResult(
                    Status.FAULT, explanation="The turn's earlier queries don't give again what they gave."
                )
            results.append(result)
        return results

    async def rollback(self) -> None:
        """Go back to before the last `run`."""
        if self._open:
            self._connection.execute("ROLLBACK")
            self._open = False

    async def _restore(self, worked: Sequence[tuple[ToolCall, ToolResult]]) -> bool:
        """The turn up to here without the call that failed, which took the transaction with it; false if it differs."""
        await self.rollback()
        self._begin()
        again = [await self._tool.run(self._connection, call) for call, _ in worked]
        return [result.observed for _, result in worked] == [result.observed for result in again]

    def _begin(self) -> None:
        self._connection.execute("BEGIN TRANSACTION")
        self._open = True


def _shown(value: object) -> str:
    if value is None:
        return "NULL"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _listed(kinds: frozenset[str]) -> str:
    return ", ".join(sorted(kind.replace("_", " ") for kind in kinds))

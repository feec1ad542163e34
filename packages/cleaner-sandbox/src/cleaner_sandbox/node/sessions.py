"""Sessions as callers see them: cells, going back, and what happens when a state can't be gone back to directly.

The supervisor keeps the states. This side keeps the committed cells and what they showed, so that a state that isn't
kept, or that could not be forked, can be rebuilt by running them again from the latest kept one; if they don't show the
same again, the rollback is declined and the session is lost, because nobody could say what state it is in.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from cleaner_sandbox.inside import kernel, wire
from cleaner_sandbox.node.files import NOTHING, fetched, listed
from cleaner_sandbox.node.links import SessionLink, SessionStatus
from cleaner_sandbox.node.preview import OutputPreview
from cleaner_sandbox.node.verdict import displays_of, result_of
from cleaner_sandbox.node.zygotes import SlotDiedError, close_all
from cleaner_sandbox.protocol.limits import Limits
from cleaner_sandbox.protocol.requests import (
    Cell,
    CellOutcome,
    Commit,
    FileList,
    RollbackDeclinedError,
    RunOutcome,
    SessionInfo,
    SessionLostError,
    SessionRequest,
    code_problem,
    encoded,
    input_problem,
)
from cleaner_sandbox.protocol.results import RunResult, RunStatus

CANCELLED = "a call was cancelled"
GIVEN_UP = "what its program left could not be ended in time"
TOO_LARGE = "The program was stopped: what it left is more than its session may hold of the node's memory."

CELL_BYTES = 1_024
"""About what a cell takes beside its texts and files."""

RULES = {Commit.ON_SUCCESS: wire.ON_SUCCESS, Commit.ALWAYS: wire.ALWAYS, Commit.NEVER: wire.NEVER}


@dataclass(frozen=True, slots=True)
class Terms:
    """What a node's configuration means for a session."""

    environment: str
    versions: Mapping[str, str]
    limits: Limits
    maxima: Limits
    keep_chars: int
    fetch_bytes: int
    idle_seconds: float
    ttl_seconds: float


class Session:
    """Keeps an interpreter alive from cell to cell, and can go back to an earlier state.

    Cells run one at a time, in order of arrival. `Node.open_session` opens one.

    Examples:
        >>> import asyncio
        >>> from cleaner_sandbox import BARE, Node, NodeConfig, SessionRequest
        >>> async def main() -> tuple[str, str]:
        ...     async with Node(NodeConfig(slots=1, environments=(BARE,))) as node:
        ...         session = await node.open_session(SessionRequest(environment="bare"))
        ...         before = (await session.run("x = 1")).checkpoint
        ...         changed = await session.run("x = 2; print(x)")
        ...         await session.rollback(before)
        ...         return changed.result.output, (await session.run("print(x)")).result.output
        >>> asyncio.run(main())
        ('2\\n', '1\\n')
    """

    def __init__(
        self,
        link: SessionLink,
        request: SessionRequest,
        terms: Terms,
        status: SessionStatus,
        ran: Callable[[Session], Awaitable[bool]],
        closed: Callable[[Session, str], None],
        owner: str = "",
    ) -> None:
        """`ran` is called after each cell, may end any session, and says whether what the cell made can stay;
        `closed` with one that ended, and why."""
        self.id = uuid.uuid4().hex
        self.owner = owner
        """Name of the tenant that it was opened for."""
        self._link = link
        link.grew = self._grew
        self._request = request
        self._terms = terms
        self._status = status
        self._ran = ran
        self._closed = closed
        self._committed: list[tuple[Cell, int]] = []
        """Each with the hash of what it showed: the texts themselves would be memory that nobody counts."""
        self._brought = 0
        """Bytes that came with those cells: they are held as long, to be run again."""
        self.turn = asyncio.Lock()
        """Held by whoever has it do something."""
        self._broken = False
        """Whether the last cell found no interpreter to run in."""
        self.lost = ""
        """Why there is no session any more."""
        self.used = self._opened = time.monotonic()
        self.rebuild_seconds = 0.0
        """Wall time of all cells that were run again."""

    @property
    def pid(self) -> int:
        """Return the process id of its supervisor."""
        return self._link.pid

    @property
    def checkpoint(self) -> int:
        """Return the number of the state that it is at."""
        return self._status.checkpoint

    @property
    def held_bytes(self) -> int:
        """Return the bytes that it holds: memory and files of all its states, and the cells that made them."""
        return self._status.held_bytes + self._brought

    @property
    def busy(self) -> bool:
        """Return whether a cell runs."""
        return self.turn.locked()

    @property
    def info(self) -> SessionInfo:
        """Return its description for its owner."""
        idle = time.monotonic() - self.used
        language, environment = self._request.language, self._terms.environment
        return SessionInfo(self.id, language, environment, self.checkpoint, self.busy, round(idle, 3), self.held_bytes)

    @property
    def due(self) -> float:
        """Return when its time is over, by the monotonic clock."""
        return min(self.used + self._terms.idle_seconds, self._opened + self._terms.ttl_seconds)

    def expire(self) -> None:
        """End it if its time is over, and say which time that was."""
        now = time.monotonic()
        if now >= self._opened + self._terms.ttl_seconds:
            self.end(f"its time to live of {self._terms.ttl_seconds:g} s was over (ttl_seconds)")
        elif now >= self.due:
            self.end(f"it was idle for {self._terms.idle_seconds:g} s, the most it may be (idle_seconds)")

    async def run(self, cell: Cell | str, preview: OutputPreview | None = None) -> CellOutcome:
        """Run a cell. Raises `SessionLostError` if the state is gone; a cell is never run twice on its own.

        A `preview` can be read while the cell runs.
        """
        async with self.turn:
            with self._whole():
                outcome = await self._run(Cell(cell) if isinstance(cell, str) else cell, preview=preview)
                if outcome.committed and not await self._ran(self):
                    return await self._undo(outcome)
                return outcome

    async def list_files(self) -> FileList:
        """List the files below the working folder. Raises `SessionLostError` if the session is gone."""
        async with self.turn:
            with self._whole():
                lists: list[FileList] = []
                for _ in range(
                    2
                ):  # the first one may find that the last cell broke the interpreter, and undo that cell
                    await self._run(Cell("", commit=Commit.NEVER), lists)
                    if lists:
                        return lists[0]
                raise self._end("its files could not be listed")

    @contextlib.contextmanager
    def _whole(self) -> Iterator[None]:
        """End the session if a call is given up, or fails, on its way: nobody knows what state it would be in."""
        try:
            yield
        except (SessionLostError, RollbackDeclinedError):
            raise
        except asyncio.CancelledError:
            self.end(CANCELLED)
            raise
        except BaseException:
            self.end("the node failed to finish a call")
            raise

    async def _undo(self, outcome: CellOutcome) -> CellOutcome:
        """Make a cell one that failed, because no session may hold what it left."""
        result = replace(outcome.result, status=RunStatus.MEMORY, exception=None, explanation=TOO_LARGE)
        before, unrepeatable = outcome.checkpoint - 1, False
        try:
            await self._go_back(before)
        except RollbackDeclinedError:
            unrepeatable = True
        run = replace(outcome.run, result=result)
        return CellOutcome(run, False, before, self._status.obstacles, unrepeatable)

    async def _run(
        self, cell: Cell, lists: list[FileList] | None = None, preview: OutputPreview | None = None
    ) -> CellOutcome:
        """Run a cell; if there are `lists`, one of the files that it leaves is added."""
        self._require()
        problem = input_problem(cell) or code_problem(cell.code, self._request.language)
        if problem is not None:
            refusal = RunResult(RunStatus.REFUSED, explanation=problem)
            run = RunOutcome(refusal, environment=self._terms.environment, request_id=cell.request_id)
            return CellOutcome(run, False, self.checkpoint, self._status.obstacles)
        wanted = self.checkpoint
        outcome = await self._cell(cell, RULES[cell.commit or self._request.commit], lists, preview)
        unrepeatable = bool(self.lost)
        if outcome.committed:
            kept = replace(cell, fetch=(), request_id="")
            self._committed.append((kept, hash(outcome.result.observed)))
            self._brought += _brought(kept)
        elif not self.lost and self.checkpoint < wanted:
            if self._broken:  # what the last committed cell left was no interpreter any more
                wanted -= 1
            try:
                await self._rebuild(wanted)
            except RollbackDeclinedError:  # the next caller hears of it; this cell has its answer
                unrepeatable = True
        # Of one that was lost on the way, what it should have come to: who makes it again counts from there.
        checkpoint = wanted if self.lost else self.checkpoint
        return CellOutcome(outcome.run, outcome.committed, checkpoint, self._status.obstacles, unrepeatable)

    async def rollback(self, checkpoint: int | None = None) -> int:
        """Go back to a checkpoint (None: the state before the last committed cell); returns where it is now.

        Raises `RollbackDeclinedError` for a state that there never was or that can't be rebuilt, `SessionLostError` if
        there is no session any more.
        """
        async with self.turn:
            self._require()
            target = self.checkpoint - 1 if checkpoint is None else checkpoint
            if not 0 <= target <= self.checkpoint:
                raise RollbackDeclinedError(f"there is no checkpoint {target}; the session is at {self.checkpoint}")
            with self._whole():
                await self._go_back(target)
            return self.checkpoint

    async def _go_back(self, target: int) -> None:
        try:
            self._status = await self._link.rollback(target)
        except SlotDiedError:
            if self._link.given_up:
                self.end(GIVEN_UP)
                raise RollbackDeclinedError(f"the session is lost: {self.lost}") from None
            raise self._end("its supervisor died") from None
        await self._rebuild(target)
        self.used = time.monotonic()

    async def shed(self, most: int) -> None:
        """Drop the oldest kept states until it holds no more than `most` bytes, if that is enough; none is lost for
        good, because the cells that made them can be run again. It must be the caller's turn."""
        if not self.lost:
            try:
                self._status = await self._link.shed(max(0, most - self._brought))
            except SlotDiedError:
                self.end("its supervisor died")

    async def close(self) -> None:
        """End the session and all its processes; closing twice is fine."""
        self.end("it was closed")

    def end(self, why: str) -> None:
        """End it for a reason, which later callers get to read."""
        if not self.lost:
            self.lost = why
            self._link.kill()
            # Whoever still knows of it, and that may be a cycle of objects, must not hold what its cells brought.
            self._committed.clear()
            self._closed(self, why)

    def _grew(self, held: int) -> None:
        self._status = self._status._replace(held_bytes=held)

    def supervisor_died(self) -> None:
        """Note that its process is gone."""
        self.end(GIVEN_UP if self._link.given_up else "its supervisor died")

    async def _cell(
        self,
        cell: Cell,
        rule: int,
        lists: list[FileList] | None = None,
        preview: OutputPreview | None = None,
    ) -> CellOutcome:
        terms = self._terms
        looks = bool(cell.fetch) or lists is not None
        limits = (cell.limits or self._request.limits or terms.limits).clipped(terms.maxima)
        start = wire.CELL.pack(
            wire.KIND_CELL,
            rule,
            limits.cpu_seconds,
            limits.wall_seconds,
            limits.memory_mb << 20,
            limits.output_bytes,
            (wire.FOLDER if looks else 0) | (wire.OUTPUT_FILES if preview is not None else 0),
        )
        printing = None if preview is None else preview.taker(limits.output_bytes, terms.keep_chars)
        stdin = encoded(cell.stdin) if isinstance(cell.stdin, str) else cell.stdin
        display_bytes = limits.output_bytes if cell.keep_displays else 0
        request = wire.pack((cell.code, cell.echo_last_expression, display_bytes, stdin, dict(cell.files) or None))
        try:
            run_exit, files, status = await self._link.cell(
                start, request, wire.patience(limits.wall_seconds), printing
            )
        except SlotDiedError:
            raise self._end("its supervisor died") from None
        finally:
            if preview is not None:
                preview.close()
        if status is None:
            self.end(GIVEN_UP)
        self._status = status or self._status._replace(committed=False)
        try:
            result = await result_of(run_exit, files, limits.output_bytes, terms.keep_chars, terms.versions)
            displays, left_out = await displays_of(files[2], limits.output_bytes)
            # There is no folder of a cell that never began.
            found = NOTHING
            if looks and len(files) > 3:
                found = await fetched(files[3], cell.fetch, terms.fetch_bytes)
                if lists is not None:
                    lists.append(await listed(files[3]))
        finally:
            try:
                for output in files[:3]:
                    kernel.empty_for_good(output)  # the program may have kept it, and nobody counts what is in it
            finally:
                close_all(files)
        self.used = time.monotonic()
        self._broken = run_exit.reason == wire.BROKEN
        run = RunOutcome(
            result,
            found.files,
            run_exit.cpu_seconds,
            run_exit.wall_seconds,
            run_exit.peak_bytes / (1 << 20),
            run_exit.exit_code,
            run_exit.signal,
            terms.environment,
            cell.request_id,
            files_left_out=found.left_out,
            displays=displays,
            displays_left_out=left_out,
        )
        return CellOutcome(run, bool(self._status.committed), self.checkpoint, self._status.obstacles)

    async def _rebuild(self, target: int) -> None:
        """Run the committed cells from the state that is left up to the one that was asked for.

        It is part of one call, which has a slot for as long as a program may have one, however many cells there are.
        """
        self._brought -= sum(_brought(cell) for cell, _ in self._committed[target:])
        del self._committed[target:]
        most = self.rebuild_seconds + self._terms.maxima.wall_seconds
        while self.checkpoint < target:
            if self.rebuild_seconds >= most:
                self.end("a state had to be rebuilt, and its cells took longer than a call may")
                raise RollbackDeclinedError(f"the session is lost: {self.lost}")
            cell, shown = self._committed[self.checkpoint]
            outcome = await self._cell(cell, wire.ALWAYS)
            self.rebuild_seconds += outcome.run.wall_seconds
            if outcome.result.status is RunStatus.FAULT:
                raise self._end("a state had to be rebuilt, and its cells could not be run")
            if hash(outcome.result.observed) != shown or not outcome.committed:
                self.end("a state had to be rebuilt, and its cells did not show the same again")
                raise RollbackDeclinedError(f"the session is lost: {self.lost}")

    def _require(self) -> None:
        self.expire()
        if self.lost:
            raise SessionLostError(f"session lost: {self.lost}")

    def _end(self, why: str) -> SessionLostError:
        self.end(why)
        return SessionLostError(f"session lost: {self.lost}")


def _brought(cell: Cell) -> int:
    """About how many bytes are held for a cell: its own, and of text as many as its widest character makes it take."""
    texts = (cell.code, cell.stdin, *cell.files, *cell.files.values())
    return CELL_BYTES + sum(map(sys.getsizeof, texts))

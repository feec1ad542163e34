"""Sessions as callers see them: cells, going back, and what happens when a state can't be gone back to directly.

The supervisor keeps the states. This side keeps the committed cells and what they showed, so that a state that isn't
kept, or that could not be forked, can be rebuilt by running them again from the latest kept one; if they don't show the
same again, the rollback is declined and the session is lost, because nobody could say what state it is in.
"""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cleaner_rl.sandbox.inside import wire
from cleaner_rl.sandbox.limits import Limits
from cleaner_rl.sandbox.links import SessionLink, Standing
from cleaner_rl.sandbox.requests import (
    Cell,
    CellOutcome,
    Commit,
    RollbackDeclinedError,
    RunOutcome,
    SessionLostError,
    SessionRequest,
    encoded,
    input_problem,
)
from cleaner_rl.sandbox.verdict import fetched, result_of
from cleaner_rl.sandbox.zygotes import SlotDiedError
from cleaner_rl.tools import Status, ToolResult

RULES = {Commit.ON_SUCCESS: wire.ON_SUCCESS, Commit.ALWAYS: wire.ALWAYS, Commit.NEVER: wire.NEVER}


@dataclass(frozen=True, slots=True)
class Terms:
    """What a node's configuration means for a session."""

    preload: str
    versions: Mapping[str, str]
    limits: Limits
    maxima: Limits
    keep_chars: int
    fetch_bytes: int


class Session:
    """A live interpreter that can go back. Cells run one at a time, in order of arrival."""

    def __init__(
        self,
        link: SessionLink,
        request: SessionRequest,
        terms: Terms,
        standing: Standing,
        ran: Callable[[], None],
        closed: Callable[[Session, str], None],
    ) -> None:
        """`ran` is called after each cell, and may end any session; `closed` with one that ended, and why."""
        self.id = uuid.uuid4().hex
        self._link = link
        self._request = request
        self._terms = terms
        self._standing = standing
        self._ran = ran
        self._closed = closed
        self._committed: list[tuple[Cell, tuple[object, ...]]] = []
        self._brought = 0
        """Bytes that came with those cells: they are held as long, to be run again."""
        self._turn = asyncio.Lock()
        self._broken = False
        """Whether the last cell found no interpreter to run in."""
        self.lost = ""
        """Why there is no session any more."""
        self.used = time.monotonic()

    @property
    def pid(self) -> int:
        """Of its supervisor."""
        return self._link.pid

    @property
    def checkpoint(self) -> int:
        """The state it stands at."""
        return self._standing.checkpoint

    @property
    def held_bytes(self) -> int:
        """Memory and files of all its states, and the cells that made them."""
        return self._standing.held_bytes + self._brought

    @property
    def busy(self) -> bool:
        """Whether a cell runs."""
        return self._turn.locked()

    async def run(self, cell: Cell | str) -> CellOutcome:
        """Run a cell. Raises `SessionLostError` if the state is gone; a cell is never run twice on its own."""
        async with self._turn:
            outcome = await self._run(Cell(cell) if isinstance(cell, str) else cell)
        self._ran()
        return outcome

    async def _run(self, cell: Cell) -> CellOutcome:
        self._require()
        if (problem := input_problem(cell)) is not None:
            refusal = ToolResult(Status.REFUSED, explanation=problem)
            run = RunOutcome(refusal, preload=self._terms.preload, request_id=cell.request_id)
            return CellOutcome(run, False, self.checkpoint, self._standing.obstacles)
        wanted = self.checkpoint
        outcome = await self._cell(cell, RULES[cell.commit or self._request.commit])
        unrepeatable = False
        if outcome.committed:
            self._committed.append((cell, outcome.result.observed))
            self._brought += _brought(cell)
        elif self.checkpoint < wanted:
            if self._broken:  # what the last committed cell left was no interpreter any more
                wanted -= 1
            try:
                await self._rebuild(wanted)
            except RollbackDeclinedError:  # the next caller is told; this cell has its answer
                unrepeatable = True
        # Of one that was lost on the way, what it should have come to: who makes it again counts from there.
        checkpoint = wanted if self.lost else self.checkpoint
        return CellOutcome(outcome.run, outcome.committed, checkpoint, self._standing.obstacles, unrepeatable)

    async def rollback(self, checkpoint: int | None = None) -> int:
        """Go back to a checkpoint (None: the state before the last committed cell); says where the session now stands.

        Raises `RollbackDeclinedError` for a state that there never was or that can't be rebuilt, `SessionLostError` if
        there is no session any more.
        """
        async with self._turn:
            self._require()
            target = self.checkpoint - 1 if checkpoint is None else checkpoint
            if not 0 <= target <= self.checkpoint:
                raise RollbackDeclinedError(f"there is no checkpoint {target}; the session stands at {self.checkpoint}")
            try:
                self._standing = await self._link.rollback(target)
            except SlotDiedError:
                raise self._end("its supervisor died") from None
            await self._rebuild(target)
            self.used = time.monotonic()
            return self.checkpoint

    async def close(self) -> None:
        """End the session and all its processes; closing twice is fine."""
        self.end("it was closed")

    def end(self, why: str) -> None:
        """End it for a reason that later callers are told."""
        if not self.lost:
            self.lost = why
            self._link.kill()
            self._closed(self, why)

    def supervisor_died(self) -> None:
        """Its process is gone."""
        self.end("its supervisor died")

    async def _cell(self, cell: Cell, rule: int) -> CellOutcome:
        terms = self._terms
        limits = (cell.limits or self._request.limits or terms.limits).clipped(terms.maxima)
        start = wire.CELL.pack(
            wire.KIND_CELL,
            rule,
            limits.cpu_seconds,
            limits.wall_seconds,
            limits.memory_mb << 20,
            limits.output_bytes,
            bool(cell.fetch),
        )
        stdin = encoded(cell.stdin) if isinstance(cell.stdin, str) else cell.stdin
        request = wire.pack((cell.code, cell.echo_last_expression, stdin, dict(cell.files) or None))
        patience = limits.wall_seconds * (wire.STARVED_FACTOR + 1) + 30
        try:
            ending, files, self._standing = await self._link.cell(start, request, patience)
        except SlotDiedError:
            raise self._end("its supervisor died") from None
        except asyncio.CancelledError:
            self.end("a cell was cancelled")
            raise
        try:
            result = result_of(ending, files, limits.output_bytes, terms.keep_chars, terms.versions)
            found = fetched(files[3], cell.fetch, terms.fetch_bytes) if cell.fetch else {}
        finally:
            for descriptor in files:
                os.close(descriptor)
        self.used = time.monotonic()
        self._broken = ending.reason == wire.BROKEN
        run = RunOutcome(
            result,
            found,
            ending.cpu_seconds,
            ending.wall_seconds,
            ending.peak_bytes / (1 << 20),
            ending.exit_code,
            ending.signal,
            terms.preload,
            cell.request_id,
        )
        return CellOutcome(run, bool(self._standing.committed), self.checkpoint, self._standing.obstacles)

    async def _rebuild(self, target: int) -> None:
        """Run the committed cells from the state that is left up to the one that was asked for."""
        self._brought -= sum(_brought(cell) for cell, _ in self._committed[target:])
        del self._committed[target:]
        while self.checkpoint < target:
            cell, shown = self._committed[self.checkpoint]
            outcome = await self._cell(cell, wire.ALWAYS)
            if outcome.result.faulty:
                raise self._end("a state had to be rebuilt, and its cells could not be run")
            if outcome.result.observed != shown or not outcome.committed:
                self.end("a state had to be rebuilt, and its cells did not show the same again")
                raise RollbackDeclinedError(f"the session is lost: {self.lost}")

    def _require(self) -> None:
        if self.lost:
            raise SessionLostError(f"session lost: {self.lost}")

    def _end(self, why: str) -> SessionLostError:
        self.end(why)
        return SessionLostError(f"session lost: {self.lost}")


def _brought(cell: Cell) -> int:
    """About how many bytes came with a cell."""
    return len(cell.code) + len(cell.stdin or "") + sum(map(len, cell.files.values()))

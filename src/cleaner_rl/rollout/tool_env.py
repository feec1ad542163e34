"""Where calls run: in fresh interpreters, side by side, or in one session that remembers and can go back.

    async with tool_env.open(key) as session:
        results = await session.run(turn.calls)
        await session.rollback()                  # to before the first of these calls

`run` answers every call, whatever became of it: a call that can't be read gets its refusal, a sandbox that broke a
fault. Leaving the block ends what was opened, also on cancellation.

A session that is lost (its node died, it had to make room) is built again from the cells that it had committed, and is
as good as the lost one only if they give what they gave before; else the call is a fault. Unless it was lost because
its own cells don't give the same twice: then that is the programs' doing, and the calls that need their state fail.

Limits: tools that run no program need an environment of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Protocol

from cleaner_rl.rollout.sandbox_results import tool_result
from cleaner_rl.tasks import Task
from cleaner_rl.tools import Status, ToolCall, ToolResult, feedback
from cleaner_rl.trajectory import Key
from cleaner_sandbox.protocol import (
    MADE_ROOM,
    Cell,
    CellOutcome,
    Limits,
    RollbackDeclinedError,
    RunOutcome,
    RunRequest,
    SessionLostError,
    SessionRequest,
)

CLOSING_SECONDS = 10.0
"""For a session to be ended after its rollout was: a node that doesn't answer ends it by itself later."""
REBUILDS = 3
"""How often one call may lose its session before it is a fault."""
LOST = "The session was lost, and its cells don't give again what they gave."
UNREPEATABLE = (
    "The state that this call needs is gone: after a call that failed it had to be made again, and the calls that had "
    "made it don't give the same when they run again."
)


class ToolSession(Protocol):
    """The tools of one rollout."""

    async def run(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Run a turn's calls, and return their results in order."""
        ...

    async def rollback(self) -> None:
        """Go back to the state before the last `run`."""
        ...


class ToolEnv(Protocol):
    """Opens the tools of a rollout."""

    @property
    def stateful(self) -> bool:
        """Return whether a call can see what an earlier one left."""
        ...

    @property
    def limits(self) -> Limits | None:
        """Return what a call may use, if it isn't the sandbox's default."""
        ...

    def open(self, key: Key) -> AbstractAsyncContextManager[ToolSession]:
        """Open the tools of one rollout."""
        ...


def prepared_for(task: Task, tool_env: ToolEnv) -> ToolEnv:
    """Return the tools of a task: those of all tasks, with its own environment and setup."""
    if not task.environment and not task.setup and not task.check:
        return tool_env
    if not isinstance(tool_env, SessionToolEnv):
        raise ValueError(
            f"task '{task.id}' has an environment, a setup or a check: the prompt must have a session's tool"
        )
    return tool_env.begun_with(task.environment, task.setup)


class Session(Protocol):
    """The interface of a sandbox's session."""

    @property
    def checkpoint(self) -> int:
        """Return the number of the state that it is at; a new session that was given files isn't at 0."""
        ...

    async def run(self, cell: Cell | str) -> CellOutcome:
        """Run a cell."""
        ...

    async def rollback(self, checkpoint: int | None = None) -> int:
        """Go back to an earlier state."""
        ...

    async def close(self) -> None:
        """End the session."""
        ...


class Sandbox(Protocol):
    """The interface of a sandbox: a node, or the client of many."""

    async def run(self, request: RunRequest) -> RunOutcome:
        """Run a program."""
        ...

    async def open_session(self, request: SessionRequest | None = None) -> Session:
        """Open a session."""
        ...


class StatelessToolEnv:
    """Runs each call in an interpreter of its own, all calls of a turn at once."""

    stateful = False

    def __init__(self, sandbox: Sandbox, limits: Limits | None = None) -> None:
        self._sandbox, self.limits = sandbox, limits

    @asynccontextmanager
    async def open(self, key: Key) -> AsyncIterator[ToolSession]:  # noqa: ARG002 - nothing is kept for a rollout
        """Return the tools of one rollout."""
        yield self

    async def run(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Return the results of a turn's calls, in their order."""
        if len(calls) == 1:
            return [await self._run(calls[0])]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._run(call)) for call in calls]
        return [task.result() for task in tasks]

    async def rollback(self) -> None:
        """Do nothing: there is no state to go back from."""

    async def _run(self, call: ToolCall) -> ToolResult:
        if call.refusal is not None:
            return call.refusal
        outcome = await self._sandbox.run(RunRequest(call.code, limits=self.limits, keep_displays=False))
        return tool_result(outcome.result)


class SessionToolEnv:
    """Opens one session per rollout; calls run in order. A failed call leaves nothing behind."""

    stateful = True

    def __init__(
        self,
        sandbox: Sandbox,
        request: SessionRequest = SessionRequest(),  # noqa: B008 - frozen
        setup: str = "",
    ) -> None:
        """Make sessions as `request` says; each begins with the setup, a program whose output nobody sees."""
        self._sandbox, self._request, self._setup = sandbox, request, setup
        self.limits = request.limits

    def begun_with(self, environment: str, setup: str) -> SessionToolEnv:
        """Return the same with another setup, and with another environment if one is named."""
        request = replace(self._request, environment=environment or self._request.environment)
        return SessionToolEnv(self._sandbox, request, setup)

    @asynccontextmanager
    async def open(self, key: Key) -> AsyncIterator[ToolSession]:  # noqa: ARG002 - every session begins alike
        """Return the tools of one rollout; the first call opens the session."""
        tool_session = SessionHands(self._sandbox, self._request, self._setup)
        try:
            yield tool_session
        finally:
            await tool_session.close()


@dataclass(frozen=True, slots=True)
class _Kept:
    """A cell that the session holds."""

    code: str
    result: ToolResult


class _UnopenedError(Exception):
    """The sandbox gave no session, after it was waited for, or the setup failed: there is no use in asking again."""


class SessionHands:
    """The session of one rollout, and the cells that made its state."""

    def __init__(self, sandbox: Sandbox, request: SessionRequest, setup: str) -> None:
        self._sandbox, self._request, self._setup = sandbox, request, setup
        self._session: Session | None = None
        self._cells: list[_Kept] = []
        self._checkpoints: list[int] = []
        """Of this session, before the first cell and after each."""
        self._mark = 0
        """How many cells there were before the last `run`."""
        self._unrepeatable = False
        """Whether the session was lost by what its cells do: nobody could keep their state, or make it again."""
        self._given_up = False
        """Whether that was seen of these very cells: they aren't run once more for each call."""

    async def run(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """The results of a turn's calls, in their order. After one that failed the next still runs."""
        self._mark = len(self._cells)
        results: list[ToolResult] = []
        for call in calls:
            # What is broken was waited for once: that is enough for a turn, which is a fault already.
            fault = next((result for result in results if result.faulty), None)
            results.append(call.refusal or fault or await self._run(call.code))
        return results

    async def rollback(self) -> None:
        """Go back to before the last `run`."""
        if len(self._cells) == self._mark:
            return
        del self._cells[self._mark :], self._checkpoints[self._mark + 1 :]
        self._given_up = False  # with fewer cells, it is another state
        if self._session is None:
            return
        try:
            await self._session.rollback(self._checkpoints[-1])
        except RollbackDeclinedError:
            # The state wasn't kept, and its cells, run again, showed something else. A program can bring that about in
            # many ways, so it is never a fault: that would let it choose not to be trained on.
            self._unrepeatable = True
            await self.close()  # the next call builds it again
        except SessionLostError:
            await self.close()

    async def close(self) -> None:
        """End the session, also one that a cancelled rollout leaves."""
        session, self._session = self._session, None
        if session is not None:
            await _end(session)

    async def _run(self, code: str) -> ToolResult:
        if self._given_up:
            return ToolResult(Status.CRASHED, explanation=UNREPEATABLE)
        reason = ""
        for _ in range(REBUILDS):
            try:
                session = self._session or await self._build()
                if session is None:
                    await self.close()
                    self._given_up = self._unrepeatable
                    return ToolResult(Status.CRASHED, explanation=UNREPEATABLE) if self._given_up else _fault(LOST)
                outcome = await session.run(Cell(code, keep_displays=False))
            except _UnopenedError as error:
                return _fault(f"No session could be opened: {error}")
            except SessionLostError as error:
                reason = str(error)
                # Only a session that holds more than its part has to make room: that is its programs' doing.
                self._unrepeatable = self._unrepeatable or MADE_ROOM in reason
                await self.close()
                continue
            result = tool_result(outcome.result)
            if outcome.committed:
                self._cells.append(_Kept(code, result))
                self._checkpoints.append(outcome.checkpoint)
            elif outcome.checkpoint in self._checkpoints:
                self._follow(outcome.checkpoint)
            else:  # even the files that it began with are gone: the next call opens another one
                self._cells.clear()
                self._mark = 0
                await self.close()
            if outcome.unrepeatable:
                self._unrepeatable = True
                await self.close()
            return result
        return _fault(f"The session was lost {REBUILDS} times: {reason}")

    def _follow(self, checkpoint: int) -> None:
        """A cell that was kept may be undone later: by what it had left, the interpreter ended after it."""
        kept = self._checkpoints.index(checkpoint)
        del self._cells[kept:], self._checkpoints[kept + 1 :]
        self._mark = min(self._mark, kept)

    async def _build(self) -> Session | None:
        """A session in the state that the last one had; None if it can't be had again."""
        self._session = session = await self._open()
        if self._setup:
            prepared = await session.run(Cell(self._setup))
            if not prepared.committed:
                raise _UnopenedError(f"the task's setup failed: {feedback(tool_result(prepared.result))}")
        self._checkpoints = [session.checkpoint]
        for kept in self._cells:
            outcome = await session.run(Cell(kept.code, keep_displays=False))
            result = tool_result(outcome.result)
            if result.faulty:
                raise SessionLostError(result.explanation)
            if not outcome.committed or result.observed != kept.result.observed:
                return None
            self._checkpoints.append(outcome.checkpoint)
        self._unrepeatable = False
        return session

    async def _open(self) -> Session:
        opening = asyncio.ensure_future(self._sandbox.open_session(self._request))
        try:
            return await asyncio.shield(opening)
        except SessionLostError as error:
            raise _UnopenedError(str(error)) from error
        except asyncio.CancelledError:
            # The node may have made it already: wait for its name, because only who knows it can end it.
            with suppress(Exception):
                async with asyncio.timeout(CLOSING_SECONDS):
                    await _end(await opening)
            opening.cancel()
            raise


async def _end(session: Session) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(CLOSING_SECONDS):
            await session.close()


def _fault(explanation: str) -> ToolResult:
    return ToolResult(Status.FAULT, explanation=explanation)

"""A stand-in for `Node`, for tests only: it isolates nothing, and can be told to break.

The tests of what the service does with a node that breaks need one that breaks on command; all others use the real one.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import io
import os
import signal
import sys
import uuid
from collections.abc import Callable
from dataclasses import replace

from cleaner_rl.sandbox import (
    Cell,
    CellOutcome,
    Commit,
    Node,
    NodeConfig,
    NodeStatus,
    RollbackDeclinedError,
    RunOutcome,
    RunRequest,
    Session,
    SessionLostError,
    SessionRequest,
    Tier,
    TierError,
)
from cleaner_rl.tools import ExceptionInfo, Status, ToolResult

BREAK = "# break"
"""A program that holds this is answered as a fault."""


class StandInNode(Node):
    """Runs each program in a plain interpreter of its own."""

    def __init__(self, config: NodeConfig | None = None, broken: Callable[[RunRequest], bool] | None = None) -> None:
        self.config = config or NodeConfig(slots=4)
        self.running = 0
        self.most_running = 0
        self.ran: list[str] = []
        self.killed = 0
        self._broken = broken or (lambda request: BREAK in request.code)

    async def __aenter__(self) -> StandInNode:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def run(self, request: RunRequest) -> RunOutcome:
        self.ran.append(request.request_id)
        if self._broken(request):
            return RunOutcome(ToolResult(Status.FAULT), request_id=request.request_id, attempts=2)
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-ISc",
            request.code,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            stdin = request.stdin if isinstance(request.stdin, bytes) else (request.stdin or "").encode()
            out, err = await child.communicate(stdin)
        except asyncio.CancelledError:
            os.kill(child.pid, signal.SIGKILL)
            await child.wait()
            self.killed += 1
            raise
        finally:
            self.running -= 1
        status = Status.OK if child.returncode == 0 else Status.ERROR
        result = ToolResult(status, out.decode(), err.decode())
        return RunOutcome(result, exit_code=child.returncode, request_id=request.request_id)

    async def open_session(self, request: SessionRequest | None = None) -> Session:
        if self.config.tier is Tier.T1:
            raise TierError("Sessions need tier 2.")
        return StandInSession(request or SessionRequest())

    @property
    def status(self) -> NodeStatus:
        return NodeStatus(Tier.NONE, {}, {}, self.config.slots, self.running, 0, 0, len(self.ran), 0, 0, 0)


class StandInSession(Session):
    """Runs cells by `exec` in the test's own process; a cell that holds `BREAK` loses the session."""

    def __init__(self, request: SessionRequest) -> None:
        self.id = uuid.uuid4().hex
        self.lost = ""
        self._request = request
        self._states: list[tuple[dict[str, object], dict[str, bytes]]] = [({}, dict(request.files))]

    async def run(self, cell: Cell | str) -> CellOutcome:
        cell = Cell(cell) if isinstance(cell, str) else cell
        if BREAK in cell.code:
            raise SessionLostError("its process died")
        names, files = copy.deepcopy(self._states[-1])
        files.update(cell.files)
        printed = io.StringIO()
        result = ToolResult(Status.OK)
        try:
            with contextlib.redirect_stdout(printed):
                exec(cell.code, names)
        except Exception as error:
            result = ToolResult(Status.ERROR, exception=ExceptionInfo(type(error).__name__, str(error)))
        names.pop("__builtins__", None)
        rule = cell.commit or self._request.commit
        committed = rule is Commit.ALWAYS or (rule is Commit.ON_SUCCESS and result.status is Status.OK)
        if committed:
            self._states.append((names, files))
        fetched = {name: files[name] for name in cell.fetch if name in files}
        run = RunOutcome(replace(result, output=printed.getvalue()), fetched, request_id=cell.request_id)
        return CellOutcome(run, committed, len(self._states) - 1)

    async def rollback(self, checkpoint: int | None = None) -> int:
        to = len(self._states) - 2 if checkpoint is None else checkpoint
        if not 0 <= to < len(self._states):
            raise RollbackDeclinedError(f"there is no checkpoint {to}")
        del self._states[to + 1 :]
        return to

    async def close(self) -> None:
        self.lost = "it was closed"

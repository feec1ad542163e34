"""A stand-in for `Node`, for tests only: it isolates nothing, and can be told to break.

The tests of what the service does with a node that breaks need one that breaks on command; all others use the real one.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable

from cleaner_rl.sandbox import (
    Node,
    NodeConfig,
    NodeStatus,
    RunOutcome,
    RunRequest,
    Session,
    SessionRequest,
    Tier,
    TierError,
)
from cleaner_rl.tools import Status, ToolResult

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
        raise TierError("the stand-in has no sessions")

    @property
    def status(self) -> NodeStatus:
        return NodeStatus(Tier.NONE, {}, {}, self.config.slots, self.running, 0, 0, len(self.ran), 0, 0, 0)

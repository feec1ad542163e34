"""A real node whose runs the tests can count, and that breaks on command."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cleaner_sandbox import BARE, Node, NodeConfig, OutputPreview, RunOutcome, RunRequest
from cleaner_sandbox.protocol.results import RunResult, RunStatus

BREAK = "# break"
"""A program that holds this is answered as a fault: what a node says when its supervisors died twice."""


class WatchedNode(Node):
    """Runs like any other."""

    def __init__(self, slots: int = 4, broken: Callable[[RunRequest], bool] | None = None) -> None:
        super().__init__(NodeConfig(slots=slots, environments=(BARE,)))
        self.running = 0
        self.most_running = 0
        self.ran: list[str] = []
        self.killed = 0
        self.gate = asyncio.Event()
        """While it is clear, runs keep their slots after they have ended."""
        self.gate.set()
        self._broken = broken or (lambda request: BREAK in request.code)

    async def run(self, request: RunRequest, preview: OutputPreview | None = None) -> RunOutcome:
        self.ran.append(request.request_id)
        if self._broken(request):
            return RunOutcome(RunResult(RunStatus.FAULT), request_id=request.request_id, attempts=2)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            outcome = await super().run(request, preview)
            await self.gate.wait()
            return outcome
        except asyncio.CancelledError:
            self.killed += 1
            raise
        finally:
            self.running -= 1

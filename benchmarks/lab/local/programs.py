"""Runs each program of the lab once: programs here have no input but their text, so the same text ends alike.

In a group of eight rollouts most programs are written more than once. Runs that end in a fault of the sandbox or at a
limit are not remembered, because they say something of the machine too.
"""

from __future__ import annotations

import asyncio

from cleaner_rl.sandbox import Node, RunOutcome, RunRequest, Session, SessionRequest
from cleaner_rl.tools import Status


class RememberingSandbox:
    """A node, with the outcomes of the programs that it has run."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._runs: dict[str, asyncio.Future[RunOutcome]] = {}
        self.asked = 0
        """Programs that were to be run."""

    async def run(self, request: RunRequest | str) -> RunOutcome:
        """Run a program, or return how it ended before."""
        asked = RunRequest(request) if isinstance(request, str) else request
        self.asked += 1
        if asked.code not in self._runs:
            self._runs[asked.code] = asyncio.ensure_future(self._node.run(asked))
        outcome = await self._runs[asked.code]
        if outcome.result.faulty or outcome.result.status is Status.TIMEOUT:
            self._runs.pop(asked.code, None)
        return outcome

    async def open_session(self, request: SessionRequest | None = None) -> Session:
        """Open a session; its cells have a state, so nothing is remembered."""
        return await self._node.open_session(request)

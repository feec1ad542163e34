"""Runs each program of the lab once: programs here have no input but their text, so the same text ends alike.

In a group of eight rollouts most programs are written more than once, and the methods of a world write many alike.
Runs that end in a fault of the sandbox or at a limit are not remembered, because they say something of the machine too.
"""

from __future__ import annotations

import asyncio
from functools import partial

from cleaner_sandbox import Node, RunOutcome, RunRequest, RunStatus, Session, SessionRequest

TURNS_OF_THE_LOOP = 10
"""In which a rollout comes from what it waited for to its next request, of a program or of a completion."""


class RememberingSandbox:
    """A node, with the outcomes of the programs that it has run, or that another node with the same settings has."""

    def __init__(self, node: Node, known: dict[str, RunOutcome] | None = None) -> None:
        self._node = node
        self._known = {} if known is None else known
        self._running: dict[str, asyncio.Future[RunOutcome]] = {}
        self.asked = 0
        """Programs that were to be run."""

    async def run(self, request: RunRequest | str) -> RunOutcome:
        """Run a program, or return how it ended before."""
        asked = RunRequest(request) if isinstance(request, str) else request
        self.asked += 1
        if asked.code in self._known:
            return self._known[asked.code]
        if asked.code not in self._running:
            self._running[asked.code] = run = asyncio.ensure_future(self._node.run(asked))
            run.add_done_callback(partial(self._ended, asked.code))
        return await self._running[asked.code]

    def _ended(self, code: str, run: asyncio.Future[RunOutcome]) -> None:
        del self._running[code]
        if run.cancelled() or run.exception() is not None:
            return
        result = run.result().result
        if result.status is not RunStatus.FAULT and result.status is not RunStatus.TIMEOUT:
            self._known[code] = run.result()

    async def idle(self) -> None:
        """Wait until no program runs, and until the rollouts that could go on have done so."""
        quiet = 0
        while quiet < TURNS_OF_THE_LOOP:
            await asyncio.sleep(0)
            quiet += 1
            if self._running:
                await asyncio.wait([*self._running.values()])
                quiet = 0

    async def open_session(self, request: SessionRequest | None = None) -> Session:
        """Open a session; its cells have a state, so nothing is remembered."""
        return await self._node.open_session(request)

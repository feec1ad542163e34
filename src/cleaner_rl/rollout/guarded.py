"""A tool of another package, held to what the loop relies on: it raises nothing, and what it raises is a fault.

A tool that has raised is in a state that nobody knows, so from then on every call of that rollout is a fault, and the
rollout is tried again with fresh hands. The first traceback goes to the log, for the tool's author; the others are in
the trajectories, in a line.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

from cleaner_rl.rollout.toolbox import Hands, Toolbox
from cleaner_rl.sandbox.limits import Limits
from cleaner_rl.tools import Status, ToolCall, ToolResult
from cleaner_rl.trajectory import Key

_log = logging.getLogger(__name__)


class GuardedToolbox:
    """A toolbox whose hands only ever answer."""

    def __init__(self, tool: Toolbox, name: str) -> None:
        self._tool, self._name = tool, name
        self._told = False

    @property
    def stateful(self) -> bool:
        """Whether a call can see what an earlier one left."""
        return self._tool.stateful

    @property
    def limits(self) -> Limits | None:
        """What a call may use, where it isn't the sandbox's default."""
        return self._tool.limits

    @asynccontextmanager
    async def open(self, key: Key) -> AsyncIterator[Hands]:
        """The tools of one rollout, and what broke them, if anything did."""
        hands = GuardedHands(self)
        with hands.faults():
            opened = self._tool.open(key)
            hands.tool = await opened.__aenter__()
        try:
            yield hands
        finally:
            if hands.tool is not None:
                with hands.faults():
                    await opened.__aexit__(*sys.exc_info())

    def tell(self, error: Exception) -> str:
        """What is said of a tool that raised."""
        if not self._told:
            _log.error("the tool %s raised; its calls are faults, nobody's failures", self._name, exc_info=error)
            self._told = True
        return f"The tool {self._name} raised {type(error).__name__}: {error}"


class GuardedHands:
    """The hands of one rollout."""

    def __init__(self, toolbox: GuardedToolbox) -> None:
        self._toolbox = toolbox
        self.tool: Hands | None = None
        self._broken = ""

    async def run(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """The results of a turn's calls, in their order."""
        if self.tool is not None and not self._broken:
            with self.faults():
                return await self.tool.run(calls)
        return [ToolResult(Status.FAULT, explanation=self._broken) for _ in calls]

    async def rollback(self) -> None:
        """Go back to before the last `run`."""
        if self.tool is not None and not self._broken:
            with self.faults():
                await self.tool.rollback()

    @contextmanager
    def faults(self) -> Iterator[None]:
        """Note what is raised, and go on."""
        try:
            yield
        except Exception as error:  # whatever another package's code may raise
            self._broken = self._toolbox.tell(error)

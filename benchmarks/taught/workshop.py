"""The sandbox that demonstrations and rollouts run in: one node, with each library as a preload set of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks.taught import library
from benchmarks.taught.library import Names
from cleaner_rl.rollout import SessionToolbox, StatelessToolbox
from cleaner_rl.sandbox import Limits, Node, NodeConfig, RunOutcome, RunRequest, Session, SessionRequest
from cleaner_rl.tasks import ToolKind

LIMITS = Limits(cpu_seconds=0.1, wall_seconds=20.0, memory_mb=256)
"""Programs here take milliseconds: one that takes longer never ends."""


class Offering:
    """A node whose runs and sessions have one of its preload sets, whatever is asked for."""

    def __init__(self, node: Node, preload: str) -> None:
        self._node, self._preload = node, preload

    async def run(self, request: RunRequest | str) -> RunOutcome:
        """Run a program."""
        request = RunRequest(request) if isinstance(request, str) else request
        return await self._node.run(replace(request, preload=self._preload))

    async def open_session(self, request: SessionRequest | None = None) -> Session:
        """Open a session."""
        return await self._node.open_session(replace(request or SessionRequest(), preload=self._preload))


@asynccontextmanager
async def workshop(
    folder: Path, libraries: Sequence[Names], tool: ToolKind, *, hint: bool, slots: int = 2
) -> AsyncIterator[list[SessionToolbox | StatelessToolbox]]:
    """A toolbox for each library; what is written for the sandbox lies below `folder`, which is not in /tmp."""
    sets = [
        library.preload(library.write(folder / f"site{number}", names, hint=hint), f"{library.MODULE}{number}")
        for number, names in enumerate(libraries)
    ]
    config = NodeConfig(slots=slots, preload=tuple(sets), limits=LIMITS, sessions=64)
    kind = SessionToolbox if tool is ToolKind.SESSION else StatelessToolbox
    async with Node(config) as node:
        yield [kind(Offering(node, each.name), LIMITS) for each in sets]



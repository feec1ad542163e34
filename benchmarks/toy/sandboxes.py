"""The sandbox that demonstrations and rollouts run in: one node, with one environment per library."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks.toy import library
from benchmarks.toy.library import Names
from cleaner_rl.rollout import SessionToolEnv, StatelessToolEnv, ToolEnv
from cleaner_rl.tasks import ToolKind
from cleaner_sandbox import Limits, Node, NodeConfig, RunOutcome, RunRequest, Session, SessionRequest, find_environments

LIMITS = Limits(cpu_seconds=1.0, wall_seconds=20.0, memory_mb=256)
"""Programs take milliseconds, and a busy host can charge them tenths of a second: one that takes longer never ends."""


class Offering:
    """A node whose runs have one of its environments, whatever they import."""

    def __init__(self, node: Node, environment: str) -> None:
        self._node, self._environment = node, environment

    async def run(self, request: RunRequest | str) -> RunOutcome:
        """Run a program."""
        request = RunRequest(request) if isinstance(request, str) else request
        return await self._node.run(replace(request, environment=self._environment))

    async def open_session(self, request: SessionRequest | None = None) -> Session:
        """Open a session."""
        return await self._node.open_session(replace(request or SessionRequest(), environment=self._environment))


@asynccontextmanager
async def toy_tool_envs(
    folder: Path, libraries: Sequence[Names], tool: ToolKind, *, hint: bool, slots: int = 2
) -> AsyncIterator[list[ToolEnv]]:
    """Yield a tool environment for each library; they are written below `folder`, which must not be in /tmp."""
    written = [
        library.write(folder / f"{library.MODULE}{number}", names, hint=hint) for number, names in enumerate(libraries)
    ]
    async with offered(written, tool, slots=slots) as tool_envs:
        yield tool_envs


@asynccontextmanager
async def offered(written: Sequence[Path], tool: ToolKind, *, slots: int = 2) -> AsyncIterator[list[ToolEnv]]:
    """Yield a tool environment for each library that is already written."""
    sets = find_environments([str(each.absolute()) for each in written])
    async with Node(NodeConfig(slots=slots, environments=sets, limits=LIMITS)) as node:
        sandboxes = [Offering(node, each.name) for each in sets]
        if tool is ToolKind.SESSION:
            yield [SessionToolEnv(each, SessionRequest(limits=LIMITS)) for each in sandboxes]
        else:
            yield [StatelessToolEnv(each, LIMITS) for each in sandboxes]

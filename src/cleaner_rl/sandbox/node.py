"""One node: it holds the zygotes and slots, gives each call a slot, and turns what the slot saw into a result."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import TracebackType
from typing import Self

from cleaner_rl.sandbox.limits import Limits
from cleaner_rl.sandbox.requests import Cell, CellOutcome, RunOutcome, RunRequest, SessionRequest


class Tier(IntEnum):
    """How strongly runs are isolated. A higher tier has all that a lower one has."""

    NONE = 0
    """Nothing but the parent's own deadline. For measuring what the other tiers stop; never for untrusted code."""
    T1 = 1
    """rlimits, seccomp, landlock, scrubbed environment, no new privileges; threads but no processes."""
    T2 = 2
    """Also an own uid per slot, user, network, mount, pid and IPC namespaces, and a tmpfs per run."""
    T3 = 3
    """Also cgroup v2 limits on memory and processes per slot."""


@dataclass(frozen=True, slots=True)
class PreloadSet:
    """Modules that an interpreter has loaded before a call comes."""

    name: str
    modules: tuple[str, ...] = ()
    """Imported ahead."""
    packages: tuple[str, ...] = ()
    """Distributions that runs may import, with all they depend on; the standard library is always there."""
    site: str | None = None
    """Folder that the distributions are installed in (`pip install --target`); None: the node's own environment."""


BARE = PreloadSet("bare")
SCIENCE = PreloadSet("science", modules=("numpy", "sympy"), packages=("numpy", "sympy"))


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """How a node is set up."""

    slots: int = field(default_factory=lambda: 2 * (os.cpu_count() or 1))
    """Runs at the same time; more calls wait."""
    preload: tuple[PreloadSet, ...] = (BARE, SCIENCE)
    """Smallest first: a call that names none gets the first that has all it imports, or the last."""
    tier: Tier | None = None
    """None: the highest that works here."""
    min_tier: Tier = Tier.T1
    """The node refuses to start below it."""
    limits: Limits = field(default_factory=Limits)
    """For calls that name none."""
    maxima: Limits = field(default_factory=lambda: Limits(60.0, 300.0, 4096, 256, 1024, 65_536, 1024, 16_777_216))
    refuse_above_maxima: bool = False
    """Answer a call that asks for more with `refused`; otherwise its limits are clipped."""
    keep_chars: int = 65_536
    """Characters of stdout and of stderr that a result keeps."""
    fetch_bytes: int = 16_777_216
    """All fetched files of a call together."""
    sessions: int = 64
    """Open at once; the one that was idle for longest makes room."""
    session_ttl: float = 1800.0
    """Seconds of idleness after which a session is closed."""
    session_memory_mb: int = 8192
    """All sessions together; the ones idle for longest make room."""
    checkpoints: int = 8
    """States that a session keeps to go back to."""


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A node as it stands: for health checks and metrics."""

    tier: Tier
    probes: Mapping[str, str]
    """What was tried at start, and what came of it: "ok" or the reason."""
    versions: Mapping[str, Mapping[str, str]]
    """Interpreter and libraries of each preload set."""
    slots: int
    busy: int
    waiting: int
    sessions: int
    runs: int
    """Answered since the start."""
    faults: int
    slot_deaths: int
    zygote_deaths: int


class Node:
    """Runs programs. `async with Node(NodeConfig()) as node: outcome = await node.run(RunRequest("print(1)"))`."""

    def __init__(self, config: NodeConfig | None = None) -> None:
        self.config = config or NodeConfig()

    async def __aenter__(self) -> Self:
        """Probe the tiers, start the zygotes and fork the first slots. Raises `TierError` below `min_tier`."""
        raise NotImplementedError

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill every run and every process of the node, and wait until they are gone."""
        raise NotImplementedError

    async def run(self, request: RunRequest) -> RunOutcome:
        """Run one program; waits for a free slot in order of arrival.

        Never raises for what the program or the request does: that is a status. If the supervisor of the slot dies, the
        call runs once more on a fresh slot and is then answered as a fault. Cancelling kills the run.
        """
        raise NotImplementedError

    async def open_session(self, request: SessionRequest | None = None) -> Session:
        """Open a stateful interpreter. Tier 2 and up."""
        raise NotImplementedError

    @property
    def status(self) -> NodeStatus:
        """The node as it stands."""
        raise NotImplementedError


class Session:
    """A live interpreter that can go back. Cells run one at a time, in order of arrival."""

    id: str

    async def run(self, cell: Cell | str) -> CellOutcome:
        """Run a cell. Raises `SessionLostError` if the state is gone; a cell is never run twice on its own."""
        raise NotImplementedError

    async def rollback(self, checkpoint: int | None = None) -> int:
        """Go back to a checkpoint (None: the state before the last committed cell); says where the session now stands.

        Raises `RollbackDeclinedError` for a state that isn't kept, `SessionLostError` if there is no session any more.
        """
        raise NotImplementedError

    async def close(self) -> None:
        """End the session and all its processes; closing twice is fine."""
        raise NotImplementedError


class TierError(RuntimeError):
    """The node can't isolate as strongly as it is required to."""

"""One node: it holds the zygotes and slots, gives each call a slot, and turns what the slot saw into a result."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from cleaner_rl.sandbox import layout, seccomp
from cleaner_rl.sandbox.inside import kernel, wire
from cleaner_rl.sandbox.inside.layers import MOST as MOST_LAYERS
from cleaner_rl.sandbox.limits import Limits
from cleaner_rl.sandbox.pool import Pool
from cleaner_rl.sandbox.preload import BARE, SCIENCE, PreloadSet
from cleaner_rl.sandbox.preload import choose as choose_set
from cleaner_rl.sandbox.requests import (
    Cell,
    Commit,
    RunOutcome,
    RunRequest,
    SessionLostError,
    SessionRequest,
    path_problem,
)
from cleaner_rl.sandbox.sessions import Session, Terms
from cleaner_rl.sandbox.tiers import Layer, Tier, TierError, choose, probe
from cleaner_rl.sandbox.verdict import Ending, fetched, result_of
from cleaner_rl.sandbox.zygotes import Slot, SlotDiedError
from cleaner_rl.tools import Status, ToolResult

FIRST_UID = 1_900_000_000
"""Of the host's uids, the first that slots use: two each, out of the way of people's and containers'."""
REMEMBERED_LOSSES = 1024


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
    without: frozenset[Layer] = frozenset()
    """Layers left out of the tier, to see what they stop; only with `min_tier=Tier.NONE`, never for untrusted code."""
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

    def __post_init__(self) -> None:
        if self.without and self.min_tier is not Tier.NONE:
            raise ValueError("layers can be left out only with min_tier=Tier.NONE")


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
        self._pools: dict[str, Pool] = {}
        self._free = asyncio.Semaphore(self.config.slots)
        self._tier = Tier.NONE
        self._probes: dict[str, str] = {}
        self._folder = ""
        self._sessions: dict[str, Session] = {}
        self._lost: dict[str, str] = {}
        self._expiry: asyncio.TimerHandle | None = None
        self._waiting = self._busy = self._runs = self._faults = 0

    async def __aenter__(self) -> Self:
        """Probe the tiers, start the zygotes and fork the first slots. Raises `TierError` below `min_tier`."""
        config = self.config
        self._probes = probe()
        self._tier = choose(self._probes, config.tier, config.min_tier)
        self._folder = tempfile.mkdtemp(prefix="cleaner-sandbox-")
        os.chmod(self._folder, 0o711)
        indices = deque(range(config.slots * len(config.preload) + config.sessions + 64))
        for each in config.preload:
            self._pools[each.name] = Pool(each.name, self._settings(each), config.slots, indices)
        try:
            await asyncio.gather(*(pool.start() for pool in self._pools.values()))
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill every run and every process of the node, and wait until they are gone."""
        if self._expiry is not None:
            self._expiry.cancel()
        for session in list(self._sessions.values()):
            session.end("the node ended")
        for pool in self._pools.values():
            pool.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def run(self, request: RunRequest) -> RunOutcome:
        """Run one program; waits for a free slot in order of arrival.

        Never raises for what the program or the request does: that is a status. If the supervisor of the slot dies, the
        call runs once more on a fresh slot and is then answered as a fault. Cancelling kills the run.
        """
        outcome = self._refusal(request)
        if outcome is None:
            limits = request.limits or self.config.limits
            outcome = await self._run(request, limits.clipped(self.config.maxima), self._pool_for(request))
        self._runs += 1
        self._faults += outcome.result.faulty
        return outcome

    @property
    def status(self) -> NodeStatus:
        """The node as it stands."""
        pools = self._pools.values()
        return NodeStatus(
            tier=self._tier,
            probes=self._probes,
            versions={pool.name: pool.versions for pool in pools},
            slots=self.config.slots,
            busy=self._busy,
            waiting=self._waiting,
            sessions=len(self._sessions),
            runs=self._runs,
            faults=self._faults,
            slot_deaths=sum(pool.slot_deaths for pool in pools),
            zygote_deaths=sum(pool.zygote_deaths for pool in pools),
        )

    @property
    def pids(self) -> Mapping[str, tuple[int, tuple[int, ...]]]:
        """Of each preload set, the zygote's process and the supervisors': for operators and for fault injection."""
        return {name: pool.pids for name, pool in self._pools.items()}

    async def open_session(self, request: SessionRequest | None = None) -> Session:
        """Open a stateful interpreter. Tier 2 and up: raises `TierError` below it, `ValueError` for an unknown set.

        Where there are as many sessions as the node may have, the one that was idle for longest makes room; raises
        `RuntimeError` if all of them are at work.
        """
        request = request or SessionRequest()
        if Layer.PID not in self._layers or Layer.MOUNT not in self._layers:
            raise TierError("sessions need tier 2: their files and processes are rolled back by namespaces")
        pool = self._pools.get(request.preload)
        if pool is None:
            raise ValueError(f"there is no preload set '{request.preload}'")
        self._make_room()
        limits = (request.limits or self.config.limits).clipped(self.config.maxima)
        terms = Terms(
            pool.name, pool.versions, limits, self.config.maxima, self.config.keep_chars, self.config.fetch_bytes
        )
        session: Session | None = None

        def died(link: Slot) -> None:
            pool.free(link.index)
            if session is not None:
                session.supervisor_died()

        link = pool.fork_session(died, self._session_settings(request, limits))
        try:
            standing = await link.first()
        except BaseException:
            link.kill()
            raise
        session = Session(link, request, terms, standing, self._session_closed)
        self._sessions[session.id] = session
        if request.files:
            await session.run(Cell("", files=request.files, commit=Commit.ALWAYS))
        self._expire()
        return session

    def session(self, session_id: str) -> Session:
        """An open session. Raises `SessionLostError`, with the reason where it is still known."""
        found = self._sessions.get(session_id)
        if found is None:
            raise SessionLostError(f"session lost: {self._lost.get(session_id, 'there is none of that name')}")
        return found

    def _session_settings(self, request: SessionRequest, limits: Limits) -> dict[str, Any]:
        # Every kept state is a process of the session's own.
        processes = limits.processes + self.config.checkpoints + 3
        return {
            "seed": request.seed,
            "checkpoints": self.config.checkpoints,
            "cpu_seconds": limits.cpu_seconds,
            "disk_bytes": limits.disk_mb << 20,
            "inodes": limits.files + 4 * MOST_LAYERS,
            "session_limits": (limits.memory_mb << 20, limits.disk_mb << 20, processes, limits.open_files),
        }

    def _session_closed(self, session: Session, why: str) -> None:
        self._sessions.pop(session.id, None)
        self._lost[session.id] = why
        while len(self._lost) > REMEMBERED_LOSSES:
            del self._lost[next(iter(self._lost))]

    def _make_room(self) -> None:
        """Close the sessions that were idle for longest, until one more may be opened."""
        budget = self.config.session_memory_mb << 20
        idle = sorted((each for each in self._sessions.values() if not each.busy), key=lambda each: each.used)
        while idle and (
            len(self._sessions) >= self.config.sessions
            or sum(each.held_bytes for each in self._sessions.values()) > budget
        ):
            idle.pop(0).end("it made room for another one")
        if len(self._sessions) >= self.config.sessions:
            raise RuntimeError("all sessions of this node are at work")

    def _expire(self) -> None:
        """Close what was idle for too long, and look again when the next one may be due."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        now = time.monotonic()
        for session in list(self._sessions.values()):
            if not session.busy and now - session.used >= self.config.session_ttl:
                session.end("it was idle for too long")
        if self._sessions:
            oldest = min(session.used for session in self._sessions.values())
            wait = max(oldest + self.config.session_ttl - now, self.config.session_ttl / 10)
            self._expiry = asyncio.get_running_loop().call_later(wait, self._expire)

    def _pool_for(self, request: RunRequest) -> Pool:
        name = request.preload
        return self._pools[choose_set(request.code, self.config.preload).name if name is None else name]

    def _refusal(self, request: RunRequest) -> RunOutcome | None:
        """The answer to a request that asks for what the node doesn't give; None if it is fine."""
        problem = None
        if request.preload is not None and request.preload not in self._pools:
            problem = f"There is no preload set '{request.preload}'. Available: {', '.join(self._pools)}."
        for path in (*request.files, *request.fetch):
            wrong = path_problem(path)
            if wrong is not None:
                problem = f"The file name {path!r} {wrong}."
        limits = request.limits or self.config.limits
        above = limits.above(self.config.maxima)
        if above and self.config.refuse_above_maxima:
            problem = f"Above what this node allows: {', '.join(above)}."
        if sum(map(len, request.files.values())) > limits.clipped(self.config.maxima).disk_mb << 20:
            problem = "The files are larger than the run's disk limit."
        if problem is None:
            return None
        return RunOutcome(ToolResult(Status.REFUSED, explanation=problem), request_id=request.request_id)

    async def _run(self, request: RunRequest, limits: Limits, pool: Pool) -> RunOutcome:
        start = wire.START.pack(
            wire.KIND_START,
            limits.cpu_seconds,
            limits.wall_seconds,
            limits.memory_mb << 20,
            limits.output_bytes,
            bool(request.fetch),
        )
        payload = _payload(request, limits)
        usual = self.config.limits
        disk = None
        if (limits.disk_mb, limits.files) != (usual.disk_mb, usual.files):
            disk = wire.DISK.pack(wire.KIND_DISK, limits.disk_mb << 20, limits.files)
        patience = limits.wall_seconds * (wire.STARVED_FACTOR + 1) + 30
        for attempt in (1, 2):
            self._waiting += 1
            try:
                await self._free.acquire()
            finally:
                self._waiting -= 1
            self._busy += 1
            try:
                slot = await pool.take()
                try:
                    ending, files = await slot.run(start, payload, patience, disk)
                    try:
                        return self._outcome(request, limits, pool, ending, files, attempt)
                    finally:
                        for descriptor in files:
                            os.close(descriptor)
                        if request.fetch:
                            slot.release_folder()
                finally:
                    pool.give(slot)
            except SlotDiedError:
                continue
            finally:
                self._busy -= 1
                self._free.release()
        result = ToolResult(Status.FAULT, explanation="The sandbox lost the run twice.")
        return RunOutcome(result, preload=pool.name, request_id=request.request_id, attempts=2)

    def _outcome(
        self, request: RunRequest, limits: Limits, pool: Pool, ending: Ending, files: list[int], attempt: int
    ) -> RunOutcome:
        result = result_of(ending, files, limits.output_bytes, self.config.keep_chars, pool.versions)
        return RunOutcome(
            result,
            fetched(files[3], request.fetch, self.config.fetch_bytes) if request.fetch else {},
            ending.cpu_seconds,
            ending.wall_seconds,
            ending.peak_bytes / (1 << 20),
            ending.exit_code,
            ending.signal,
            pool.name,
            request.request_id,
            attempt,
        )

    def _settings(self, preload: PreloadSet) -> dict[str, Any]:
        """What a zygote has to know."""
        layers = self._layers
        own_files = Layer.MOUNT in layers
        packages = layout.packages(preload)
        read = kernel.LANDLOCK_READ
        rights = [("/", read), ("/dev", read | kernel.LANDLOCK_WRITE_FILE)]  # there are no devices but ours
        if not own_files:
            paths = layout.readable(preload)
            rights = [(path, read if os.path.isdir(path) else kernel.LANDLOCK_READ_FILE) for path in paths]
            rights += [(path, kernel.LANDLOCK_WRITE_FILE) for path in layout.DEVICES]
        limits = self.config.limits
        return {
            "layers": frozenset(layer.value for layer in layers),
            "layers_folder": "/layers",
            "modules": list(preload.modules),
            "warm_up": preload.warm_up,
            "paths": layout.search_path(packages),
            "report_versions": [name for name in preload.modules if "." not in name],
            "root": self._mount_point(preload.name),
            "box": "/box/run" if own_files else f"{self._folder}/{{index}}/box",
            "layout": layout.root(preload) if own_files else [],
            "texts": layout.TEXTS,
            "readable": rights,
            "landlock_abi": kernel.landlock_abi(),
            "filter": seccomp.build(processes=Layer.PID in layers) if Layer.SECCOMP in layers else b"",
            "own_pid_only": None if Layer.PID in layers else seccomp.signal_calls(),
            "first_uid": FIRST_UID,
            "disk_bytes": limits.disk_mb << 20,
            "inodes": limits.files,
        }

    @property
    def _layers(self) -> frozenset[Layer]:
        return self._tier.layers - self.config.without

    def _mount_point(self, name: str) -> str:
        path = os.path.join(self._folder, f"root-{name}")
        os.makedirs(path, exist_ok=True)
        return path


def _payload(request: RunRequest, limits: Limits) -> bytes:
    """The request as `inside.run` takes it: plain tuples, since every name in it would cost the run memory."""
    stdin = request.stdin
    return wire.pack(
        (
            request.code,
            request.echo_last_expression,
            (limits.cpu_seconds, limits.memory_mb << 20, limits.disk_mb << 20, limits.processes, limits.open_files),
            request.seed,
            stdin.encode("utf-8", "surrogateescape") if isinstance(stdin, str) else stdin,
            dict(request.files) or None,
        )
    )

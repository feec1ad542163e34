"""One node: it holds the zygotes and slots, gives each call a slot, and turns what the slot saw into a result."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import tempfile
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from cleaner_sandbox.environments import Environment, choose, listed
from cleaner_sandbox.inside import shell, wire
from cleaner_sandbox.inside.layers import remove_folder
from cleaner_sandbox.isolation import cgroups, ids
from cleaner_sandbox.isolation.tiers import REMEDIES, Layer, Tier, TierError, choose_tier
from cleaner_sandbox.node.config import (
    FOLDER_PREFIX,
    NodeConfig,
    NodeStatus,
    ids_held,
    interpreters,
    numbers_held,
    require_kernel,
    shown_at,
    usual,
    zygote_settings,
)
from cleaner_sandbox.node.files import NOTHING, fetched
from cleaner_sandbox.node.pool import Pool
from cleaner_sandbox.node.preview import OutputPreview
from cleaner_sandbox.node.probes import probe
from cleaner_sandbox.node.sessions import Session
from cleaner_sandbox.node.store import SessionStore
from cleaner_sandbox.node.verdict import RunExit, displays_of, result_of
from cleaner_sandbox.node.zygotes import SlotDiedError, close_all
from cleaner_sandbox.protocol.limits import Limits
from cleaner_sandbox.protocol.requests import (
    Language,
    RunOutcome,
    RunRequest,
    SessionRequest,
    code_problem,
    encoded,
    input_problem,
)
from cleaner_sandbox.protocol.results import RunResult, RunStatus

CHECK_LIMITS = Limits(cpu_seconds=0.1, wall_seconds=0.1)
"""Of a program that does nothing."""


class Terms(NamedTuple):
    """What limits mean for a run, as slots and runs take it."""

    limits: Limits
    sizes: tuple[float, float, int, int]
    disk: bytes | None
    inside: tuple[float, int, int, int, int]
    held_bytes: int
    """Most that a run may hold in its process tree, its folder and its outputs together."""
    patience: float
    """Seconds after which a supervisor that says nothing is given up."""


class Node:
    """Runs programs and sessions on this machine, each call in a slot of its own.

    To be used in an `async with` statement: leaving it ends every process of the node.

    Examples:
        >>> import asyncio
        >>> from cleaner_sandbox import BARE, Node, NodeConfig, RunRequest
        >>> async def main() -> str:
        ...     async with Node(NodeConfig(slots=1, environments=(BARE,))) as node:
        ...         return (await node.run(RunRequest("print(6 * 7)"))).result.output
        >>> asyncio.run(main())
        '42\\n'
    """

    def __init__(self, config: NodeConfig | None = None) -> None:
        self.config = config or NodeConfig()
        self._pools: dict[str, Pool] = {}
        self._free = asyncio.Semaphore(self.config.slots)
        self._tier = Tier.NONE
        self._uids: tuple[int, int] | None = None
        self._probes: dict[str, str] = {}
        self._folder = ""
        self._cgroup: cgroups.Cgroup | None = None
        self._sessions = SessionStore(self.config)
        self._environments = {each.name: each for each in self.config.environments}
        self._terms = functools.lru_cache(maxsize=256)(self._terms_of)
        self._waiting = self._busy = self._runs = self._faults = 0

    async def __aenter__(self) -> Self:
        """Probe the tiers, start the zygotes and fork the first slots.

        Raises `TierError` below `min_tier`, `ZygoteError` if a set's modules can't be loaded or a slot doesn't start.
        """
        config = self.config
        self._probes = probe(config)
        self._tier = choose_tier(self._probes, config.tier, config.min_tier)
        require_kernel(config)
        if self._tier is not Tier.NONE and os.geteuid() == 0 and (first := ids.first_id(ids_held(config))) is not None:
            self._uids = first, first + ids_held(config) - 1
        sweep()
        self._folder = tempfile.mkdtemp(prefix=f"{FOLDER_PREFIX}{os.getpid()}-")
        os.chmod(self._folder, 0o711)
        indices = deque(range(numbers_held(config)))
        if Layer.CGROUP in self._layers and isinstance(own := cgroups.own_cgroup(), cgroups.Cgroup):
            self._cgroup = own.for_node()
        for each in interpreters(config):
            settings = zygote_settings(config, self._layers, each, self._folder)
            self._pools[each.name] = Pool(each.name, settings, config.slots, indices, self._cgroup)
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
        self._sessions.close()
        for pool in self._pools.values():
            await pool.close()
        if self._cgroup is not None:
            await self._cgroup.remove()
        remove_folder(self._folder)

    async def run(self, request: RunRequest, preview: OutputPreview | None = None) -> RunOutcome:
        """Run one program; waits for a free slot in order of arrival. A `preview` can be read while it runs.

        Never raises for what the program or the request does: that is a status. If the supervisor of the slot dies, the
        call runs once more on a fresh slot and is then answered as a fault. Cancelling kills the run.
        """
        outcome = self._refusal(request)
        if outcome is None:
            terms = self._terms(request.limits or self.config.limits)
            outcome = await self._run(request, terms, self._environment_for(request), preview)
        self._runs += 1
        self._faults += outcome.result.status is RunStatus.FAULT
        return outcome

    async def stuck(self) -> list[str]:
        """Run a program in an idle slot of each environment; return those whose slot did not answer it in time.

        Such a slot is replaced. It doesn't matter how the program ends, so a machine that is merely busy isn't stuck.
        """
        terms = self._terms(CHECK_LIMITS)
        start = wire.START.pack(wire.KIND_START, *terms.sizes, 0, terms.limits.processes)
        payload = _payload(RunRequest(""), terms)
        pools = self._pools.values()
        answers = await asyncio.gather(*(pool.answers(start, payload, terms.patience) for pool in pools))
        return [pool.name for pool, answered in zip(pools, answers, strict=True) if not answered]

    @property
    def status(self) -> NodeStatus:
        """Return the node's state now: its tier, and counts of what runs, waits and failed."""
        pools = self._pools.values()
        return NodeStatus(
            tier=self._tier,
            probes=self._probes,
            versions={pool.name: pool.versions for pool in pools},
            uids=self._uids,
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
        """Return per environment the zygote's process and the slots' supervisors: for operators and fault injection."""
        return {name: pool.pids for name, pool in self._pools.items()}

    async def open_session(self, request: SessionRequest | None = None, owner: str = "", owners: int = 1) -> Session:
        """Open a stateful interpreter; it needs tier 2: raises `TierError` below it, `ValueError` for an unknown set.

        Places and memory for sessions are shared out evenly among owners. Half of the places are kept for those of all
        `owners` that have few sessions or none. Where there is no place for another one, the owner's own that was idle
        for longest makes room, or one of an owner that has more than its share;
        raises `SessionLostError` if all of them are in use or its slot dies, `ValueError` too if its files don't fit.
        """
        request = request or SessionRequest()
        if not {Layer.PID, Layer.MOUNT} <= self._layers:
            raise TierError(
                "sessions need tier 2, whose namespaces roll back files and processes, and this node runs at "
                f"{self._tier.name}. To get it: {REMEDIES['namespaces']}"
            )
        name = usual(self.config).name if request.environment is None else request.environment
        environment = self._environments.get(name)
        if environment is None:
            raise ValueError(f"there is no environment '{name}'; available: {listed([*self._environments])}")
        if request.language is Language.BASH and (lacking := self._no_shell) is not None:
            raise ValueError(f"this node can't run bash: {lacking}")
        files = shown_at(self.config, environment)
        return await self._sessions.open(request, self._pool(environment), name, files, owner, owners)

    def session(self, session_id: str) -> Session:
        """Return an open session. Raises `SessionLostError`, with the reason where it is still known."""
        return self._sessions.get(session_id)

    def why_lost(self, session_id: str) -> str | None:
        """Return why a session ended; None if there was none, or too many have ended since."""
        return self._sessions.lost.get(session_id)

    @property
    def _layers(self) -> frozenset[Layer]:
        return self._tier.layers - self.config.without

    @property
    def _no_shell(self) -> str | None:
        """Why runs can't be shells here; None if they can."""
        if Layer.SECCOMP in self._layers and Layer.PID not in self._layers:
            return f"its programs need tier 2, to start processes, and the node runs at {self._tier.name}"
        return None if os.path.exists(shell.BASH) else f"the machine has no {shell.BASH}"

    def _environment_for(self, request: RunRequest) -> Environment:
        if request.environment is not None:
            return self._environments[request.environment]
        return choose(request.code, [each for each in self.config.environments if each.files is None])

    def _pool(self, environment: Environment) -> Pool:
        return self._pools[(usual(self.config) if environment.only_files else environment).name]

    def _refusal(self, request: RunRequest) -> RunOutcome | None:
        """The answer to a request that asks for what the node doesn't give; None if it is fine."""
        problem = input_problem(request) or code_problem(request.code, request.language)
        if request.language is Language.BASH and (lacking := self._no_shell) is not None:
            problem = f"This node can't run bash: {lacking}."
        if request.environment is not None:
            problem = self._lacking(request.environment) or problem
        terms = self._terms(request.limits or self.config.limits)
        if request.files and sum(map(len, request.files.values())) > terms.limits.disk_mb << 20:
            problem = "The files are larger than the run's disk limit."
        if problem is None:
            return None
        return RunOutcome(RunResult(RunStatus.REFUSED, explanation=problem), request_id=request.request_id)

    def _lacking(self, name: str) -> str | None:
        """Why no run can have an environment; None if one can."""
        if name not in self._environments:
            return f"There is no environment '{name}'. Available: {listed([*self._environments])}."
        if self._environments[name].files is not None and Layer.MOUNT not in self._layers:
            return f"The environment '{name}' has files, which need tier 2, and the node runs at {self._tier.name}."
        return None

    def _terms_of(self, limits: Limits) -> Terms:
        """What limits mean for a run here; computed once for each that callers use."""
        limits = limits.clipped(self.config.maxima)
        sizes = (limits.cpu_seconds, limits.wall_seconds, limits.memory_mb << 20, limits.output_bytes)
        usual = self.config.limits.clipped(self.config.maxima)
        resized = (limits.disk_mb, limits.files) != (usual.disk_mb, usual.files)
        return Terms(
            limits,
            sizes=sizes,
            disk=wire.DISK.pack(wire.KIND_DISK, limits.disk_mb << 20, limits.files) if resized else None,
            inside=(sizes[0], sizes[2], limits.disk_mb << 20, limits.processes, limits.open_files),
            held_bytes=(limits.memory_mb + limits.disk_mb << 20) + 3 * limits.output_bytes,
            patience=wire.patience(limits.wall_seconds),
        )

    async def _run(
        self, request: RunRequest, terms: Terms, environment: Environment, preview: OutputPreview | None
    ) -> RunOutcome:
        pool, shown = self._pool(environment), shown_at(self.config, environment)
        hand_over = (wire.FOLDER if request.fetch else 0) | (wire.OUTPUT_FILES if preview is not None else 0)
        start = wire.START.pack(wire.KIND_START, *terms.sizes, hand_over, terms.limits.processes)
        printing = None if preview is None else preview.taker(terms.limits.output_bytes, self._keep_chars(request))
        payload = _payload(request, terms)
        for attempt in (1, 2):
            self._waiting += 1
            try:
                await self._free.acquire()
            finally:
                self._waiting -= 1
            self._busy += 1
            try:
                slot = await (pool.take_with(shown) if shown else pool.take())
                try:
                    if slot.cgroup is not None:
                        slot.cgroup.bound(terms.held_bytes, terms.limits.processes)
                    try:
                        run_exit, files = await slot.run(start, payload, terms.patience, terms.disk, printing)
                    finally:
                        if preview is not None:
                            preview.close()
                    try:
                        if slot.cgroup is not None and slot.cgroup.ran_out() and run_exit.signal == signal.SIGKILL:
                            run_exit = run_exit._replace(reason=wire.MEMORY)
                        return await self._outcome(request, terms, pool, run_exit, files, attempt)
                    finally:
                        close_all(files)
                        if request.fetch:
                            slot.release_folder()
                finally:
                    pool.give(slot)
            except SlotDiedError:
                continue
            finally:
                self._busy -= 1
                self._free.release()
        result = RunResult(RunStatus.FAULT, explanation="The sandbox lost the run twice.")
        return RunOutcome(result, environment=environment.name, request_id=request.request_id, attempts=2)

    def _keep_chars(self, request: RunRequest) -> int:
        return self.config.keep_chars if request.keep_chars is None else request.keep_chars

    async def _outcome(
        self, request: RunRequest, terms: Terms, pool: Pool, run_exit: RunExit, files: list[int], attempt: int
    ) -> RunOutcome:
        result = await result_of(run_exit, files, terms.limits.output_bytes, self._keep_chars(request), pool.versions)
        found = await fetched(files[3], request.fetch, self.config.fetch_bytes) if request.fetch else NOTHING
        displays, left_out = await displays_of(files[2], terms.limits.output_bytes)
        return RunOutcome(
            result,
            found.files,
            run_exit.cpu_seconds,
            run_exit.wall_seconds,
            run_exit.peak_bytes / (1 << 20),
            run_exit.exit_code,
            run_exit.signal,
            request.environment or pool.name,
            request.request_id,
            attempt,
            found.left_out,
            displays,
            left_out,
        )


def sweep() -> None:
    """Remove the folders of nodes of this user that were killed and could not do so themselves."""
    for path in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*"):
        pid = path.name.removeprefix(FOLDER_PREFIX).partition("-")[0]
        with contextlib.suppress(OSError):
            if pid.isdigit() and path.lstat().st_uid == os.geteuid() and not Path(f"/proc/{pid}").exists():
                remove_folder(str(path))


def _payload(request: RunRequest, terms: Terms) -> bytes:
    """The request as `inside.run` takes it: plain tuples, since every name in it would cost the run memory."""
    stdin = request.stdin
    return wire.pack(
        (
            request.code,
            request.echo_last_expression,
            request.language is Language.BASH,
            terms.limits.output_bytes if request.keep_displays else 0,
            terms.inside,
            request.seed,
            encoded(stdin) if isinstance(stdin, str) else stdin,
            dict(request.files) or None,
        )
    )

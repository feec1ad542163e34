"""The sessions of a node: opened, found, and closed when their time or the space for them runs out."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from cleaner_sandbox.inside.layers import MOST as MOST_LAYERS
from cleaner_sandbox.node.config import NodeConfig
from cleaner_sandbox.node.pool import Pool
from cleaner_sandbox.node.sessions import Session, Terms
from cleaner_sandbox.node.shares import has_room
from cleaner_sandbox.node.zygotes import Slot, SlotDiedError
from cleaner_sandbox.protocol.limits import Limits
from cleaner_sandbox.protocol.requests import (
    MADE_ROOM,
    Cell,
    Commit,
    Language,
    SessionLostError,
    SessionRequest,
)
from cleaner_sandbox.protocol.results import RunStatus

REMEMBERED_LOSSES = 1024
FULL_SHARE = 0.9
"""Of the memory for sessions, above which none is opened: the rest is for those that are open to grow into."""
STARTING = 2
"""Sessions of one owner that are started at the same time: to start one takes the CPU from everybody's runs."""
LEAST_OPEN_FILES = {Language.PYTHON: 10, Language.BASH: 32}
"""Of a session: five that its interpreter always has, and five that come with each cell. Bash has its own above 10."""


class NoRoomError(SessionLostError):
    """All sessions of a node are in use; there will be room again."""


LOOK_SECONDS = 0.1
"""Least time between looks at whose time is over: one that is busy then is looked at again."""


class SessionStore:
    """All open sessions, and why the latest closed ones were closed."""

    def __init__(self, config: NodeConfig) -> None:
        self._config = config
        self._sessions: dict[str, Session] = {}
        self.lost: dict[str, str] = {}
        self._opening: Counter[str] = Counter()
        """Sessions of each owner that have their place and no interpreter yet."""
        self._starting: dict[str, asyncio.Semaphore] = {}
        self._expiry: asyncio.TimerHandle | None = None
        self._freeing = asyncio.Lock()
        self._at_work: set[asyncio.Future[None]] = set()

    def __len__(self) -> int:
        return len(self._sessions)

    async def open(
        self, request: SessionRequest, pool: Pool, environment: str, files: str, owner: str, owners: int = 1
    ) -> Session:
        """Open one in a slot of its own, for one of so many owners, with what its working folder begins with.

        Raises `SessionLostError` if its slot dies, `NoRoomError` if all sessions are in use and none can make room,
        `ValueError` if its files can't be put into it, or no interpreter can keep to its limits.
        """
        limits = self._limits(request)
        least = LEAST_OPEN_FILES[request.language]
        if limits.open_files < least:
            why = f"a session needs an open_files limit of at least {least}, not {limits.open_files}"
            raise ValueError(f"{why}; raise it in the request's limits, or in the node's")
        if sum(map(len, request.files.values())) > limits.disk_mb << 20:
            raise ValueError("the files are larger than the session's disk limit")
        await self._make_room(owner, owners)
        self._opening[owner] += 1
        try:
            async with self._starting.setdefault(owner, asyncio.Semaphore(STARTING)):
                session = await self._start(request, pool, environment, files, owner)
        except SlotDiedError:
            raise SessionLostError("session lost: its supervisor died before it had begun; open a new one") from None
        finally:
            self._opening[owner] -= 1
        if request.files:
            try:
                await _put(session, request.files)
            except BaseException:
                session.end("its files could not be put into it")
                raise
        return session

    def get(self, session_id: str) -> Session:
        """An open session. Raises `SessionLostError`, with the reason where it is still known."""
        found = self._sessions.get(session_id)
        if found is None:
            raise SessionLostError(f"session lost: {self.lost.get(session_id, 'no session has this id')}")
        return found

    def close(self) -> None:
        """End them all."""
        if self._expiry is not None:
            self._expiry.cancel()
        for session in list(self._sessions.values()):
            session.end("the node ended")

    async def _start(self, request: SessionRequest, pool: Pool, environment: str, files: str, owner: str) -> Session:
        config, limits = self._config, self._limits(request)
        keep_chars = config.keep_chars if request.keep_chars is None else request.keep_chars
        idle = min(request.idle_seconds or config.session_idle, config.session_idle)
        ttl = min(request.ttl_seconds or config.session_ttl, config.session_ttl)
        terms = Terms(environment, pool.versions, limits, config.maxima, keep_chars, config.fetch_bytes, idle, ttl)
        session: Session | None = None

        def died(link: Slot) -> None:
            pool.free(link.index)
            if session is not None:
                session.supervisor_died()

        link = pool.fork_session(died, {**self._settings(request, limits), "files": files})
        try:
            await pool.begun(link)
            status = await link.first()
            session = Session(link, request, terms, status, self._keep_to_memory, self._closed, owner)
            self._sessions[session.id] = session
            self._expire()
        except BaseException:
            link.kill()
            raise
        return session

    def _limits(self, request: SessionRequest) -> Limits:
        return (request.limits or self._config.limits).clipped(self._config.maxima)

    def _settings(self, request: SessionRequest, limits: Limits) -> dict[str, Any]:
        return {
            "seed": request.seed,
            "shell": request.language is Language.BASH,
            "checkpoints": self._config.checkpoints,
            "cpu_seconds": limits.cpu_seconds,
            "disk_bytes": limits.disk_mb << 20,
            "inodes": limits.files + 4 * MOST_LAYERS,
            "session_limits": (limits.memory_mb << 20, limits.disk_mb << 20, limits.processes, limits.open_files),
        }

    def _closed(self, session: Session, why: str) -> None:
        self._sessions.pop(session.id, None)
        self.lost[session.id] = why
        while len(self.lost) > REMEMBERED_LOSSES:
            del self.lost[next(iter(self.lost))]

    async def _make_room(self, owner: str, owners: int) -> None:
        """Make room for one more session of an owner. Raises `NoRoomError` if there is none to be had.

        Not at the cost of sessions that were used just now: their callers would open them again, at the cost of others,
        without end.
        """
        enough = FULL_SHARE * self._memory
        await self._free_memory(enough, owner)
        for session in self._idle(owner, self._config.session_grace):
            if not self._crowded(owner, owners):
                break
            if session.owner == owner or self._count(session.owner) > self._config.sessions / self._tenants(owner):
                session.end("it made room for another one")
        full = self._held() > enough and self._held(owner) > FULL_SHARE * self._share(owner)
        if self._crowded(owner, owners) or full:
            raise NoRoomError("all sessions of this node are in use; close some, wait, or raise --sessions")

    async def _keep_to_memory(self, ran: Session) -> bool:
        """Keep all sessions together to their memory, after one of them has run a cell; whether what the cell left can
        stay. It can't if the session then holds more than its part and nothing else can be given up: to end the session
        instead would be a fault, and programs could bring that about."""
        await self._free_memory(self._memory, ran.owner, ran)
        return not (self._held() > self._memory and self._takes_too_much(ran))

    def _takes_too_much(self, session: Session) -> bool:
        """Whether a session holds more than its part of its owner's share, and the owner more than that share."""
        share = self._share(session.owner)
        return self._held(session.owner) > share and session.held_bytes > share / max(1, self._count(session.owner))

    async def _free_memory(self, most: float, owner: str, ran: Session | None = None) -> None:
        """Have owners that hold more than their share give some of it up, `owner` first, until all hold no more than
        `most` bytes together: kept states, which can be made again, and then sessions that were idle for longest.

        An owner that holds no more than its part doesn't wait for that: what others hold can take long to look at.
        """
        waits = self._held(owner) > most / self._tenants(owner)
        if self._held() > most and (waits or not self._at_work):
            # Not given up with the caller: other sessions are told to drop states, and their answers have to be read.
            work = asyncio.ensure_future(self._free(most, owner, ran if waits else None))
            self._at_work.add(work)
            work.add_done_callback(self._at_work.discard)
            if waits:
                await asyncio.shield(work)

    async def _free(self, most: float, owner: str, ran: Session | None) -> None:
        async with self._freeing:
            if ran is not None:
                await self._shed(ran, most, owner)  # its turn is ours
            for session in self._idle(owner, 0.0):
                if not session.busy:
                    async with session.turn:
                        await self._shed(session, most, owner)
            # Nobody who holds no more than its part pays for others: a cell that needs still more is undone.
            for session in self._idle(owner, self._config.session_grace):
                if self._held() > most and self._takes_too_much(session):
                    session.end(MADE_ROOM)

    async def _shed(self, session: Session, most: float, owner: str) -> None:
        too_many = self._held() - most
        if too_many > 0 and self._held(session.owner) > self._share(owner):
            await session.shed(int(session.held_bytes - too_many))

    def _idle(self, owner: str, seconds: float) -> list[Session]:
        """Sessions that nobody has used for so long: those of `owner` first, the longest idle ones first."""
        since = time.monotonic() - seconds
        idle = [each for each in self._sessions.values() if not each.busy and each.used <= since]
        return sorted(idle, key=lambda each: (each.owner != owner, each.used))

    @property
    def _memory(self) -> int:
        return self._config.session_memory_mb << 20

    def _held(self, owner: str | None = None) -> int:
        """Bytes that all sessions hold, or those of one owner."""
        return sum(each.held_bytes for each in self._sessions.values() if owner in (None, each.owner))

    def _count(self, owner: str) -> int:
        return sum(each.owner == owner for each in self._sessions.values())

    def _tenants(self, owner: str) -> int:
        """How many owners share the node if this one has a session, too."""
        return len({owner, *(each.owner for each in self._sessions.values())})

    def _share(self, owner: str) -> float:
        """Bytes that each of them may always hold."""
        return self._memory / self._tenants(owner)

    def _crowded(self, owner: str, owners: int) -> bool:
        """Whether there is no place for one more session of an owner."""
        held = self._opening + Counter(each.owner for each in self._sessions.values())
        return held.total() >= self._config.sessions or not has_room(self._config.sessions, held, owner, owners)

    def _expire(self) -> None:
        """Close those whose time is over, and look again when the next one may be due."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        for session in list(self._sessions.values()):
            if not session.busy:
                session.expire()
        if self._sessions:
            due = min(session.due for session in self._sessions.values())
            wait = max(due - time.monotonic(), LOOK_SECONDS)
            self._expiry = asyncio.get_running_loop().call_later(wait, self._expire)


async def _put(session: Session, files: Mapping[str, bytes]) -> None:
    """Put files into a session that is new. Raises `ValueError` if it can't have them."""
    result = (await session.run(Cell("", files=files, commit=Commit.ON_SUCCESS))).result
    if result.status is RunStatus.OK:
        return
    why = result.explanation if result.exception is None else result.exception.message
    if result.status is RunStatus.FAULT:
        raise SessionLostError(f"session lost: {why}")
    raise ValueError(f"the files can't be put into the session: {why}")

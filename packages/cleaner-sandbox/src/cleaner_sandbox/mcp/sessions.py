"""Handles of open sessions: whose each one is, and whether it is in use.

A handle works only for the token that opened it, and takes one call at a time. The node closes sessions by itself; a
handle of one that is lost is forgotten when somebody uses it, or when there are too many.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from cleaner_sandbox.client import RemoteSession
from cleaner_sandbox.node.sessions import Session
from cleaner_sandbox.protocol.requests import SessionLostError
from cleaner_sandbox.service.tenants import Tenant

MOST_HANDLES: Final = 1_024
"""Of all callers together; above it, the session that was idle for longest is closed."""
CLOSING_SECONDS: Final = 5.0
"""For all sessions to be closed when the server ends. Nodes elsewhere close those that are left by themselves."""


class UnusableCallError(Exception):
    """A call that can't be done as asked; the message tells the model what to do."""


@dataclass(slots=True, eq=False)
class Handle:
    """A session, and whose it is."""

    session: Session | RemoteSession
    tenant: Tenant
    busy: bool = False

    @property
    def lost(self) -> str:
        """Why the session is gone, as far as that is known without asking a node elsewhere."""
        return self.session.lost if isinstance(self.session, Session) else ""


class Handles:
    """The open sessions of a server, those used last at the end."""

    def __init__(self) -> None:
        self._handles: dict[str, Handle] = {}

    async def add(self, session: Session | RemoteSession, tenant: Tenant) -> str:
        """Hold a session for a tenant, and return its handle."""
        handle = self._handles[session.id] = Handle(session, tenant)
        tenant.sessions.add(handle)
        if len(self._handles) > MOST_HANDLES:
            idle = next(each for each in self._handles.values() if not each.busy)
            self._forget(idle)
            await idle.session.close()
        return session.id

    @contextmanager
    def use(self, name: str, tenant: Tenant) -> Iterator[Session | RemoteSession]:
        """Lend a session out. Raises `UnusableCallError` if there is none, it is busy, or it is lost meanwhile."""
        handle = self._find(name, tenant)
        if handle.busy:
            raise UnusableCallError("The session is busy with an earlier call. Wait for its result, then call again.")
        self._handles[name] = self._handles.pop(name)
        handle.busy = True
        try:
            if handle.lost:
                raise SessionLostError(handle.lost)
            yield handle.session
        except SessionLostError as error:
            self._forget(handle)
            raise UnusableCallError(
                f"The session and its state are gone: {error}. Open another one with `open_session`."
            ) from None
        finally:
            handle.busy = False

    async def close(self, name: str, tenant: Tenant) -> None:
        """Close a session, whatever it is doing."""
        handle = self._find(name, tenant)
        self._forget(handle)
        await handle.session.close()

    async def close_all(self) -> None:
        """Close all sessions."""
        handles = list(self._handles.values())
        for handle in handles:
            self._forget(handle)
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_SECONDS):
                await asyncio.gather(*(handle.session.close() for handle in handles))

    def _find(self, name: str, tenant: Tenant) -> Handle:
        handle = self._handles.get(name)
        if handle is None or handle.tenant is not tenant:
            raise UnusableCallError(
                f"There is no session {name!r}: it was closed, lost, or never opened. Open one with `open_session`."
            )
        return handle

    def _forget(self, handle: Handle) -> None:
        self._handles.pop(handle.session.id, None)
        handle.tenant.sessions.discard(handle)

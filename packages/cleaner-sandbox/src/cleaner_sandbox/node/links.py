"""The node's link to a session's supervisor."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import NamedTuple

from cleaner_sandbox.inside import wire
from cleaner_sandbox.node.verdict import RunExit
from cleaner_sandbox.node.zygotes import Slot, SlotDiedError, close_all

STATUS_SECONDS = 240.0
"""Nearly always milliseconds; but each of its states that doesn't answer costs a supervisor some seconds of waiting."""


class SessionStatus(NamedTuple):
    """Says at which state a session is, as its supervisor reports it."""

    kind: int
    checkpoint: int
    committed: bool
    held_bytes: int
    obstacle_bits: int

    @property
    def obstacles(self) -> tuple[str, ...]:
        """What keeps the state from being forked."""
        return tuple(name for bit, name in enumerate(wire.OBSTACLES) if self.obstacle_bits >> bit & 1)


class SessionLink(Slot):
    """One session's supervisor, seen from the node."""

    given_up = False
    """Whether its supervisor ended because its program could not be ended."""
    grew: Callable[[int], None] = staticmethod(lambda _: None)
    """Called with the bytes that the session holds if they have become many more between cells."""

    def __init__(
        self, index: int, control: socket.socket, requests: socket.socket, died: Callable[[Slot], None]
    ) -> None:
        super().__init__(index, control, requests, died)
        self._status: asyncio.Future[SessionStatus] = self._loop.create_future()
        """The next one."""

    async def first(self) -> SessionStatus:
        """Wait for the first state."""
        return await self._in_time(self._status)

    async def cell(
        self, start: bytes, request: bytes, seconds: float, printing: Callable[[list[int]], None] | None = None
    ) -> tuple[RunExit, list[int], SessionStatus | None]:
        """Run a cell; returns how it ended, its descriptors (the caller's to close), and the session's status.

        There is none if the session was given up after the cell.
        """
        status: asyncio.Future[SessionStatus] = self._loop.create_future()
        self._status = status
        run_exit, files = await self.run(start, request, seconds, printing=printing)
        try:
            return run_exit, files, await self._in_time(status)
        except BaseException as error:
            if isinstance(error, SlotDiedError) and self.given_up:
                return run_exit, files, None
            close_all(files)
            raise

    async def rollback(self, checkpoint: int) -> SessionStatus:
        """Go back as far as that, or further if the state isn't kept."""
        return await self._ask(wire.ROLLBACK.pack(wire.KIND_ROLLBACK, checkpoint))

    async def shed(self, most: int) -> SessionStatus:
        """Drop the oldest kept states until the session holds no more than `most` bytes."""
        return await self._ask(wire.SHED.pack(wire.KIND_SHED, most))

    async def _ask(self, message: bytes) -> SessionStatus:
        status: asyncio.Future[SessionStatus] = self._loop.create_future()
        self._status = status
        try:
            self._control.send(message)
        except OSError as error:
            self.kill()
            raise SlotDiedError from error
        return await self._in_time(status)

    async def _in_time(self, status: asyncio.Future[SessionStatus]) -> SessionStatus:
        """Wait for the status; a supervisor that doesn't report one is killed."""
        watchdog = self._loop.call_later(STATUS_SECONDS, self.kill)
        try:
            return await status
        finally:
            watchdog.cancel()

    def kill(self) -> None:
        """End the session and all its states."""
        super().kill()
        if not self._status.done():
            self._status.set_exception(SlotDiedError())
            self._status.exception()  # whoever asked may have been cancelled; nobody else needs to hear of it

    def _heard(self, message: bytes) -> None:
        # A cell may end just when its caller leaves: then its end comes here, too, and is nobody's.
        if message[0] == wire.KIND_STATUS and not self._status.done():
            self._status.set_result(SessionStatus._make(wire.STATUS.unpack(message)))
        elif message[0] == wire.KIND_GIVEN_UP:
            self.given_up = True
        elif message[0] == wire.KIND_HELD:
            self.grew(wire.HELD.unpack(message)[1])

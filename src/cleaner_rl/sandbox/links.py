"""The node's link to a session's supervisor."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from cleaner_rl.sandbox.inside import wire
from cleaner_rl.sandbox.verdict import Ending
from cleaner_rl.sandbox.zygotes import Slot, SlotDiedError, close_all

STANDING_SECONDS = 240.0
"""Nearly always milliseconds; but each of its states that doesn't answer costs a supervisor some seconds of waiting."""


class Standing(NamedTuple):
    """Where a session stands, as its supervisor tells it."""

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

    _standing: asyncio.Future[Standing] | None = None

    async def first(self) -> Standing:
        """Wait for the first state."""
        self._standing = standing = self._loop.create_future()
        return await self._in_time(standing)

    async def cell(self, start: bytes, request: bytes, seconds: float) -> tuple[Ending, list[int], Standing]:
        """Run a cell; how it ended, its descriptors (the caller's to close), and where the session stands now."""
        standing: asyncio.Future[Standing] = self._loop.create_future()
        self._standing = standing
        ending, files = await self.run(start, request, seconds)
        try:
            return ending, files, await self._in_time(standing)
        except BaseException:
            close_all(files)
            raise

    async def rollback(self, checkpoint: int) -> Standing:
        """Go back as far as that, or further if the state isn't kept."""
        standing: asyncio.Future[Standing] = self._loop.create_future()
        self._standing = standing
        try:
            self._control.send(wire.ROLLBACK.pack(wire.KIND_ROLLBACK, checkpoint))
        except OSError as error:
            self.kill()
            raise SlotDiedError from error
        return await self._in_time(standing)

    async def _in_time(self, standing: asyncio.Future[Standing]) -> Standing:
        """Where it stands; a supervisor that doesn't say is killed."""
        watchdog = self._loop.call_later(STANDING_SECONDS, self.kill)
        try:
            return await standing
        finally:
            watchdog.cancel()

    def kill(self) -> None:
        """End the session and all its states."""
        super().kill()
        if self._standing is not None and not self._standing.done():
            self._standing.set_exception(SlotDiedError())
            self._standing.exception()  # whoever asked may have been cancelled; nobody else needs to hear of it

    def _heard(self, message: bytes) -> None:
        # A cell may end just when its caller leaves: then its end comes here, too, and is nobody's.
        if message[0] == wire.KIND_STANDING and self._standing is not None and not self._standing.done():
            self._standing.set_result(Standing._make(wire.STANDING.unpack(message)))

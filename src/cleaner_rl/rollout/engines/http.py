"""One engine's address. A request is sent again while that can help: it is the same each time, seed included.

An engine that can't be reached, is busy (429, 503) or breaks (5xx, a connection that closes) is tried again, with
growing pauses, until `patience` is over. What it refuses (4xx) it would refuse again. Either way the caller gets an
`EngineFaultError`, with what happened.

Limits: an engine that is stuck but alive is noticed only by the caller's own deadline.
"""

from __future__ import annotations

import asyncio
import logging
import time
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec

from cleaner_rl.rollout.engine import EngineFaultError, EngineRefusedError
from cleaner_sandbox.client import probing_socket

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
SILENCE = 3.0
"""Seconds of waiting after which an address says, once, what it waits for."""

_log = logging.getLogger(__name__)


class EngineBrokeError(EngineFaultError):
    """The engine answered that it broke (5xx)."""


class Address:
    """The address of an engine. A context manager: leaving it closes its connections."""

    def __init__(self, url: str, *, patience: float = 300.0, token: str | None = None) -> None:
        """`patience`: seconds that one request waits for an engine that is away or busy."""
        self.url = url.rstrip("/")
        self._patience = patience
        self._told = False
        self._headers = {"content-type": "application/json"}
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"

    async def __aenter__(self) -> Self:
        # No limit over all: sampling takes as long as it takes. A process that dies closes its connections.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0)
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=4, socket_factory=probing_socket)
        self._http = aiohttp.ClientSession(connector=connector, timeout=timeout, headers=self._headers)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.close()

    async def post(self, path: str, body: dict[str, Any], *, again_if_broken: bool = True) -> bytes:
        """Return the answer's body. `again_if_broken`: whether a 5xx is tried again."""
        data = msgspec.json.encode(body)
        return await self._ask("POST", path, data, again_if_broken)

    async def get(self, path: str) -> bytes:
        """Return the answer's body."""
        return await self._ask("GET", path, None, True)

    async def _ask(self, method: str, path: str, data: bytes | None, again_if_broken: bool) -> bytes:
        begun = time.monotonic()
        pause = FIRST_PAUSE
        while True:
            try:
                async with self._http.request(method, self.url + path, data=data) as response:
                    answer = await response.read()
                if response.status == 200:
                    return answer
                reason = f"{self.url} answered {response.status}: {answer[:500].decode(errors='replace')}"
                if 400 <= response.status < 500 and response.status != 429:
                    raise EngineRefusedError(reason)
                if not again_if_broken and response.status != 429 and response.status != 503:
                    raise EngineBrokeError(reason)
            except (aiohttp.ClientError, OSError) as error:
                reason = f"no engine answers at {self.url}: {error}"
                if isinstance(error, aiohttp.InvalidURL):
                    raise EngineRefusedError(
                        f"'{self.url}' isn't an address; write it as http://127.0.0.1:8000"
                    ) from None
            if time.monotonic() - begun + pause > self._patience:
                raise EngineFaultError(
                    f"{reason}; gave up after {self._patience:g} s. Start it, or correct the address (--url)"
                )
            if not self._told and time.monotonic() - begun > SILENCE:
                self._told = True
                _log.warning("%s; waiting for it, up to %g s", reason, self._patience)
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE, 2 * pause)

"""Which nodes there are, and which one gets the next call.

Nodes come as a list of URLs, as a DNS name that has one address per node (`dns://name:port`, e.g. a headless service of
Kubernetes), or from the Ray cluster that the program is connected to (`ray:`, see `on_ray`); the latter two are looked
up again every few seconds. The next call goes to the less busy of two random nodes: as good as
asking all of them, and without the herd that follows when many clients pick the same least busy one.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import time
from collections.abc import Callable, Collection, Sequence
from urllib.parse import urlsplit

from cleaner_sandbox import on_ray
from cleaner_sandbox.client.links import Link

LOOK_AGAIN_SECONDS = 10.0
RAY = "ray:"

_log = logging.getLogger(__name__)


class Nodes:
    """The nodes that a client knows."""

    def __init__(self, sources: Sequence[str], connect: Callable[[str], Link], patience: float) -> None:
        if not sources:
            raise ValueError("a sandbox client needs the address of at least one node, such as http://127.0.0.1:8089")
        for source in sources:
            parts = urlsplit(source)
            if source == RAY:
                continue
            if parts.scheme not in ("http", "https", "dns") or not parts.hostname:
                raise ValueError(
                    f"{source!r} is not the address of a node: write http://host:port, dns://name:port or ray:"
                )
            if parts.scheme == "dns" and parts.port is None:
                raise ValueError(f"{source!r} lacks the nodes' port: write dns://name:port")
        self._sources, self._connect, self._patience = tuple(sources), connect, patience
        self._links: dict[str, Link] = {}
        self._looked = -LOOK_AGAIN_SECONDS
        self._looking = asyncio.Lock()
        self._warned = False

    async def pick(self, avoid: Collection[Link] = ()) -> Link | None:
        """The less busy of two random ones, none to be avoided if there are others; None: all of them are resting."""
        await self._look()
        awake = [link for link in self._links.values() if not link.resting]
        if not awake:
            self._warn_if_away()
        choices = [link for link in awake if link not in avoid] or awake
        if len(choices) < 2:
            return choices[0] if choices else None
        return min(random.sample(choices, 2), key=lambda link: link.outstanding)

    async def every(self) -> list[str]:
        """The addresses of all of them."""
        await self._look()
        return list(self._links)

    @property
    def next_awake(self) -> float:
        """Seconds until a node may be tried again."""
        soonest = min((link.resting_until for link in self._links.values()), default=0.0)
        return max(0.02, min(1.0, soonest - time.monotonic()))

    async def close(self) -> None:
        """Give up all that is on its way."""
        await asyncio.gather(*(link.close() for link in self._links.values()))

    def given_up(self, reason: str) -> str:
        """Say that patience is over: what was waited for, where, for how long, and what was heard last."""
        where = ", ".join(self._sources)
        return f"No sandbox node at {where} took the call within {self._patience:g} s (the client's patience): {reason}"

    def _warn_if_away(self) -> None:
        # To wait for nodes that are full is ordinary; that none answers may be a wrong address.
        if not self._warned and all(link.away for link in self._links.values()):
            self._warned = True
            where = ", ".join(self._sources)
            _log.warning("no sandbox node answers at %s; each call waits for one for %g s", where, self._patience)

    async def _look(self) -> None:
        if time.monotonic() - self._looked < LOOK_AGAIN_SECONDS:
            return
        async with self._looking:
            if time.monotonic() - self._looked < LOOK_AGAIN_SECONDS:
                return
            self._looked = time.monotonic()
            found = [url for source in self._sources for url in await _urls(source)]
            # A node that isn't named any more gets no new calls; what it is doing for us it may finish.
            self._links = {url: self._links.get(url) or self._connect(url) for url in found} or self._links


async def _urls(source: str) -> list[str]:
    if source == RAY:
        return await asyncio.to_thread(on_ray.urls)
    parts = urlsplit(source)
    if parts.scheme != "dns":
        return [source.rstrip("/")]
    try:
        found = await asyncio.get_running_loop().getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_STREAM)
    except OSError:
        return []
    hosts = sorted({str(address[0]) for *_, address in found})
    return [f"http://[{host}]:{parts.port}" if ":" in host else f"http://{host}:{parts.port}" for host in hosts]

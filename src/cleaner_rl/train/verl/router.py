"""Makes the scheduler of `cleaner_rl.rollout.balance` verl's router (verl's protocol `RequestLoadBalancer`).

verl asks for a server before each request and reports when the request is over; a request has the name of its
trajectory. Concurrent requests of one trajectory (scores) go to the same server.

verl runs one of these as a Ray actor. Limits: it learns the length of a context from the next request,
and so never that of a trajectory's last turn.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from cleaner_rl.rollout.balance import EvenConfig, EvenScheduler


class EvenRouter:
    """Chooses the server of each request."""

    def __init__(self, servers: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        """Take the router's file: `longest` is the engine's window."""
        self._scheduler = EvenScheduler(EvenConfig(longest=int(settings["longest"])))
        self._servers: dict[str, Any] = {}
        self._placed: dict[str, str] = {}
        """The server of each trajectory's open turn."""
        self._open: Counter[str] = Counter()
        self.add_servers(servers)

    def acquire_server(self, request_id: str, prompt_ids: Sequence[int] = (), **_extra: Any) -> tuple[str, Any]:
        """Return the server for a request."""
        if not self._servers:
            raise RuntimeError("No available servers in load balancer")  # verl's client looks for these words
        self._open[request_id] += 1
        if self._placed.get(request_id) not in self._servers:  # a new turn, or its server was removed
            now = time.monotonic()
            self._scheduler.arrive(request_id, len(prompt_ids), now)
            self._placed.update(self._scheduler.dispatch(now))
        where = self._placed[request_id]
        return where, self._servers[where]

    def release_server(self, server_id: str, request_id: str | None = None) -> None:  # noqa: ARG002 - verl's signature
        """Note that a request is over, successfully or not."""
        if request_id is None or not self._open[request_id]:
            return
        self._open[request_id] -= 1
        if not self._open[request_id]:
            del self._open[request_id], self._placed[request_id]
            self._scheduler.release(request_id, None, time.monotonic())

    def require_acquire_fields(self) -> list[str]:
        """Return the fields that a request must have: the prompt, for its length."""
        return ["prompt_ids"]

    def require_release_fields(self) -> list[str]:
        """Return the fields that a release must have."""
        return ["request_id"]

    def add_servers(self, servers: Mapping[str, Any]) -> None:
        """Add servers, or add them again with an empty cache."""
        self.remove_servers(list(servers))
        for name, handle in servers.items():
            self._servers[name] = handle
            self._scheduler.add(name)

    def remove_servers(self, server_ids: Sequence[str]) -> None:
        """Remove servers; verl sends their requests again."""
        for name in server_ids:
            if self._servers.pop(name, None) is not None:
                self._scheduler.remove(name)

    def get_all_servers(self) -> list[str]:
        """Return the names of all servers."""
        return list(self._servers)

    def get_status(self) -> dict[str, Any]:
        """Return the number of open requests per server."""
        loads = Counter(dict.fromkeys(self._servers, 0))
        for name, server in self._placed.items():
            loads[server] += self._open[name]
        return {
            "servers": dict(loads),
            "total_inflight": self._open.total(),
            "active_servers": len(self._servers),
            "moves": self._scheduler.moves,
        }

    def clear_sticky_cache(self) -> dict[str, Any]:
        """Clear nothing: a lost prefix only has to be computed again, and trajectories move when that is faster."""
        return {"cleared_entries": 0, "server_loads": self.get_status()["servers"]}

    def get_total_inflight(self) -> int:
        """Return the number of open requests."""
        return self._open.total()

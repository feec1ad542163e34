"""The scheduler of `cleaner_rl.rollout.balance` as verl's router (its protocol `RequestLoadBalancer`).

verl asks for a server before each request and says when it is over; a request is named for its trajectory. An answer
may take its time: a turn that would not fit anywhere waits here rather than in an engine's queue. Requests of one
trajectory that run side by side (scores) go where the first one went.

verl runs one of these as a Ray actor (`router_actor`), next to all workers. Limits: it learns a context's length when
its next request comes, so of a trajectory's last turn never; it doesn't read the replicas' own metrics. Without a
figure for their KV cache nothing is held back.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from cleaner_rl.rollout.balance import EvenPolicy, EvenScheduler

UNKNOWN_ROOM = 2**40


class EvenRouter:
    """Which of verl's servers a request goes to."""

    def __init__(self, servers: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        """`settings` is the router's file: `longest`, the engine's window; `room`, tokens of a replica's KV cache."""
        self._room = int(settings.get("room") or UNKNOWN_ROOM)
        self._scheduler = EvenScheduler(EvenPolicy(longest=int(settings["longest"])))
        self._servers: dict[str, Any] = {}
        self._placed: dict[str, asyncio.Future[str]] = {}
        """Where the open turn of each trajectory runs, once that is known."""
        self._open: Counter[str] = Counter()
        self.add_servers(servers)

    async def acquire_server(self, request_id: str, prompt_ids: Sequence[int] = (), **_extra: Any) -> tuple[str, Any]:
        """A server for a request, as soon as one may have it."""
        if not self._servers:
            raise RuntimeError("No available servers in load balancer")  # the words that verl's client waits for
        self._open[request_id] += 1
        if self._open[request_id] == 1:
            self._arrive(request_id, len(prompt_ids))
        while True:
            placed = self._placed[request_id]
            where = await asyncio.shield(placed)
            if where in self._servers:
                return where, self._servers[where]
            # Removed since; of those that notice, the first finds another for all.
            if self._placed[request_id] is placed:
                self._arrive(request_id, len(prompt_ids))

    def release_server(self, server_id: str, request_id: str | None = None) -> None:  # noqa: ARG002 - verl's face
        """A request is over, well or not."""
        if request_id is None or not self._open[request_id]:
            return
        self._open[request_id] -= 1
        if not self._open[request_id]:
            del self._open[request_id], self._placed[request_id]
            self._scheduler.release(request_id, None, time.monotonic())
            self._dispatch()

    def require_acquire_fields(self) -> list[str]:
        """The prompt, for its length."""
        return ["prompt_ids"]

    def require_release_fields(self) -> list[str]:
        """Whose turn is over."""
        return ["request_id"]

    def add_servers(self, servers: Mapping[str, Any]) -> None:
        """They are there, or there again, empty."""
        self.remove_servers(list(servers))
        for name, handle in servers.items():
            self._servers[name] = handle
            self._scheduler.add(name, self._room)
        self._dispatch()

    def remove_servers(self, server_ids: Sequence[str]) -> None:
        """They are gone; what runs there is verl's to send again."""
        for name in server_ids:
            if self._servers.pop(name, None) is not None:
                self._scheduler.remove(name)

    def get_all_servers(self) -> list[str]:
        """Their names."""
        return list(self._servers)

    def get_status(self) -> dict[str, Any]:
        """What runs where."""
        placed = {name: future.result() for name, future in self._placed.items() if future.done()}
        loads = Counter(dict.fromkeys(self._servers, 0))
        for name, server in placed.items():
            loads[server] += self._open[name]
        waiting = self._open.total() - loads.total()
        return {
            "servers": dict(loads),
            "total_inflight": self._open.total(),
            "active_servers": len(self._servers),
            "waiting": waiting,
            "moves": self._scheduler.moves,
        }

    def clear_sticky_cache(self) -> dict[str, Any]:
        """Nothing to clear: prefixes that are gone only cost their computing, and trajectories move when it pays."""
        return {"cleared_entries": 0, "server_loads": self.get_status()["servers"]}

    def get_total_inflight(self) -> int:
        """Open requests of all servers, and those that wait."""
        return self._open.total()

    def _arrive(self, request_id: str, tokens: int) -> None:
        self._placed[request_id] = asyncio.get_running_loop().create_future()
        self._scheduler.arrive(request_id, tokens, time.monotonic())
        self._dispatch()

    def _dispatch(self) -> None:
        for request, server in self._scheduler.dispatch(time.monotonic()):
            self._placed[request].set_result(server)

"""What a node says of itself: `/healthz`, `/metrics` and `/openapi.json`."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from cleaner_sandbox.protocol.wire import Problem, encode
from cleaner_sandbox.service.app import App, Route
from cleaner_sandbox.service.http import JSON, LINES, Exchange
from cleaner_sandbox.service.tenants import Tenant
from cleaner_sandbox.version import __version__

CHECK_SECONDS = 10.0
"""Between two checks of the slots, however often somebody asks."""
METRICS_SECONDS = 1.0
"""For which the metrics' text is kept: to make it takes milliseconds, in which nobody else is served."""


class Health(msgspec.Struct):
    """What a node says of itself at `/healthz`."""

    status: str
    """`ok`, `draining` or `stuck` (with the last two the HTTP status is 503)."""
    stuck: list[str]
    """What does not answer: `queue`, or the names of environments."""
    version: str
    tier: int
    probes: Mapping[str, str]
    versions: Mapping[str, Mapping[str, str]]
    uids: tuple[int, int] | None
    """First and last user id of runs and their supervisors; null: they have the node's own, which isn't root's."""
    slots: int
    running: int
    waiting: int
    most_waiting: int
    sessions: int
    most_sessions: int
    connections: int
    """How many the node can hold."""
    runs: int
    faults: int
    slot_deaths: int
    zygote_deaths: int


def add_about(app: App, connections: int) -> None:
    """Serve them; `connections` is how many the process can hold."""
    about = About(app, connections)
    app.add(
        Route("GET", "/healthz", about.health, "Tier, probes, versions, capacity.", None, Health, open=True),
        Route("GET", "/metrics", about.metrics, "Prometheus metrics."),
        Route("GET", "/openapi.json", about.openapi, "This document.", None, dict[str, Any], open=True),
    )


class About:
    """Answers without going through the queue, so that a busy node still looks alive."""

    def __init__(self, app: App, connections: int) -> None:
        self._app, self._connections = app, connections
        self._document: bytes | None = None
        self._metrics = b""
        self._measured = -METRICS_SECONDS
        self._checking: asyncio.Task[None] | None = None
        self._checked = -CHECK_SECONDS
        self._stuck: list[str] = []

    def now(self) -> Health:
        """Return what the node says of itself now."""
        status, queue = self._app.node.status, self._app.queue
        return Health(
            status="draining" if queue.draining else "stuck" if self._stuck else "ok",
            version=__version__,
            stuck=self._stuck,
            tier=int(status.tier),
            probes=status.probes,
            versions=status.versions,
            uids=status.uids,
            slots=status.slots,
            running=queue.running,
            waiting=queue.waiting,
            most_waiting=queue.calls.most,
            sessions=status.sessions,
            most_sessions=self._app.config.node.sessions,
            connections=self._connections,
            runs=status.runs,
            faults=status.faults,
            slot_deaths=status.slot_deaths,
            zygote_deaths=status.zygote_deaths,
        )

    async def health(self, exchange: Exchange, _: Tenant) -> None:
        """Answer 200, or 503 while draining or stuck, so that a load balancer sends nothing more.

        The slots are checked meanwhile, and the answer says what the check before found: a probe waits for nobody.
        """
        if self._checking is None and time.monotonic() - self._checked >= CHECK_SECONDS:
            self._checking = asyncio.create_task(self._check())
        health = self.now()
        await exchange.reply(encode(health), status=200 if health.status == "ok" else 503)

    async def _check(self) -> None:
        try:
            tasks = self._app.queue.tasks
            ended = {task for task in tasks if task.done()}
            sets = await self._app.node.stuck()
            self._stuck = ["queue", *sets] if ended & tasks else sets  # a call ended, and still has its slot
        finally:
            self._checked, self._checking = time.monotonic(), None

    async def metrics(self, exchange: Exchange, _: Tenant) -> None:
        """Answer in Prometheus' text form."""
        now = time.monotonic()
        if now - self._measured >= METRICS_SECONDS:
            self._metrics, self._measured = self._app.observer.text(), now
        await exchange.reply(self._metrics, content_type=b"text/plain; version=0.0.4; charset=utf-8")

    async def openapi(self, exchange: Exchange, _: Tenant) -> None:
        """Answer with the document; made once, because everybody may ask for it and it takes milliseconds."""
        self._document = self._document or encode(document(self._app))
        await exchange.reply(self._document)


def document(app: App) -> dict[str, Any]:
    """The OpenAPI document of what an app serves, made from its routes."""
    types = {kind for route in app.routes for kind in (route.request, route.response) if kind is not None}
    ordered = sorted(types | {Problem}, key=str)
    schemas, components = msgspec.json.schema_components(ordered, ref_template="#/components/schemas/{name}")
    schema_of = dict(zip(ordered, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in app.routes:
        content_type = (LINES if route.lines else JSON).decode()
        answer: dict[str, Any] = {"description": "The answer."}
        if route.response is not None:
            answer["content"] = {content_type: {"schema": schema_of[route.response]}}
        problem = {"description": "A problem.", "content": {JSON.decode(): {"schema": schema_of[Problem]}}}
        operation: dict[str, Any] = {"summary": route.summary, "responses": {"2XX": answer, "default": problem}}
        if route.request is not None:
            operation["requestBody"] = {
                "required": True,
                "content": {JSON.decode(): {"schema": schema_of[route.request]}},
            }
        if names := re.findall(r"\{(\w+)\}", route.path):
            operation["parameters"] = [
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
            ]
        if not route.open:
            operation["security"] = [{"bearer": []}, {"basic": []}, {}]
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    schemes = {"bearer": {"type": "http", "scheme": "bearer"}, "basic": {"type": "http", "scheme": "basic"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "cleaner-sandbox node", "version": __version__},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": schemes},
    }

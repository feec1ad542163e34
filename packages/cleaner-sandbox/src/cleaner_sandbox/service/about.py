"""What a node says of itself: `/healthz`, `/metrics` and `/openapi.json`."""

from __future__ import annotations

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

METRICS_SECONDS = 1.0
"""For which the metrics' text is kept: to make it takes milliseconds, in which nobody else is served."""


class Health(msgspec.Struct):
    """What a node says of itself at `/healthz`."""

    status: str
    """`ok`, or `draining` (then the HTTP status is 503)."""
    version: str
    tier: int
    probes: Mapping[str, str]
    versions: Mapping[str, Mapping[str, str]]
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

    def now(self) -> Health:
        """Return what the node says of itself now."""
        status, queue = self._app.node.status, self._app.queue
        return Health(
            status="draining" if queue.draining else "ok",
            version=__version__,
            tier=int(status.tier),
            probes=status.probes,
            versions=status.versions,
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
        """Answer 200, or 503 while draining, so that a load balancer sends nothing more."""
        await exchange.reply(encode(self.now()), status=503 if self._app.queue.draining else 200)

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

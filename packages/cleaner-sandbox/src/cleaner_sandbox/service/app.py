"""The ASGI application of a node: routes, who may call, and what a problem looks like.

`App` owns the node and the queue; each module of endpoints adds the routes of one dialect: ours (`runs`, `sessions`),
code-judge's and SandboxFusion's. Routes are a table, so that the OpenAPI document is made from what is served.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from cleaner_sandbox.node.node import Node
from cleaner_sandbox.service.admission import Admission
from cleaner_sandbox.service.fair_queue import Queue
from cleaner_sandbox.service.http import Arrivals, Exchange, GoneError, HttpError, Receive, Scope, Send
from cleaner_sandbox.service.observe import CallLog, Observer
from cleaner_sandbox.service.supervisor import ServiceConfig
from cleaner_sandbox.service.tenants import Tenant, Tenants, refuse_browsers, unauthorized

logger = logging.getLogger(__name__)

Handler = Callable[[Exchange, Tenant], Awaitable[None]]
PART: Final = "*"
"""In a route's path: one part that varies. As the last one it takes the rest of the path."""
MOST_PATH: Final = 2_048
"""Characters of a path: a session's longest name of a file is half of that. Longer ones are not even split."""


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path, with what OpenAPI says of it."""

    method: str
    path: str
    """Variable parts are in braces, as OpenAPI writes them."""
    handler: Handler
    summary: str
    request: Any = None
    """Type of the body; None: no JSON body."""
    response: Any = None
    """Type of the answer (of each line, if it comes in lines); None: not JSON."""
    lines: bool = False
    open: bool = False
    """Needs no token: tells nothing about any call."""


class App:
    """The service of one node."""

    def __init__(self, config: ServiceConfig, node: Node, tenants: Tenants, connections: int, log: CallLog) -> None:
        self.config, self.node, self.tenants = config, node, tenants
        self.admission = Admission(connections, tokens=tenants.anonymous is None)
        self.queue = Queue(config.node.slots, config.most_waiting, config.most_held_mb * 1_048_576, len(tenants))
        self.observer = Observer(lambda: node.status, self.queue, log, config.log_code)
        self._arrivals = Arrivals(config.most_body_mb * 1_048_576, config.most_held_mb * 1_048_576, len(tenants))
        self._strangers = asyncio.Lock()
        self.routes: list[Route] = []
        self._exact: dict[tuple[str, str], Route] = {}
        self._varying: list[tuple[list[str], Route]] = []

    def add(self, *routes: Route) -> None:
        """Serve some more."""
        for route in routes:
            self.routes.append(route)
            if "{" in route.path:
                pattern = [PART if part.startswith("{") else part for part in route.path.split("/")]
                self._varying.append((pattern, route))
            else:
                self._exact[route.method, route.path] = route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request: the ASGI entry point."""
        if scope["type"] != "http":
            return
        exchange = Exchange(scope, receive, send, self._arrivals)
        try:
            if self.tenants.anonymous is not None:
                refuse_browsers(exchange.header(b"host"), exchange.header(b"origin"), self.config.host)
            tenant = self.tenants.find(exchange.header(b"authorization"))
            if tenant is None:
                await self._turn_of_stranger()
            route = self._exact.get((exchange.method, exchange.path)) or self._find(exchange)
            if tenant is None and not route.open:
                raise unauthorized()
            if tenant is not None:
                exchange.tenant = tenant.name
                scope["state"]["known"](tenant.name)
            await route.handler(exchange, tenant or _NOBODY)
        except GoneError:
            pass
        except HttpError as error:
            self.observer.request_refused(error.error)
            await exchange.refuse(error)
        except asyncio.CancelledError:
            # The server's patience at shutdown is over. It would print a traceback for each such request.
            logger.warning("a request was cut off at shutdown: %s", exchange.path)
        except Exception:
            logger.exception("a request failed: %s %s", exchange.method, exchange.path)
            if exchange.answered:
                raise  # The server closes the connection: a cut-off answer must not look whole.
            await exchange.refuse(HttpError(500, "internal_error", "The node failed to handle the request."))

    async def _turn_of_stranger(self) -> None:
        """Wait until a request without a token may be answered: one of them each time that the event loop comes round.

        However many come, those with a token wait for one of them at most. Nobody's reading is waited for: a stranger
        that doesn't read must not hold up the next one, which may be a health check.
        """
        async with self._strangers:
            await asyncio.sleep(0)

    def _find(self, exchange: Exchange) -> Route:
        if len(exchange.path) > MOST_PATH:
            raise HttpError(404, "not_found", f"There is no path of more than {MOST_PATH} characters here.")
        parts = exchange.path.split("/")
        methods = {method for method, path in self._exact if path == exchange.path}
        for pattern, route in self._varying:
            rest = parts[len(pattern) - 1 :]
            if len(parts) < len(pattern) or (len(rest) > 1 and pattern[-1] != PART):
                continue
            if all(mine in (PART, theirs) for mine, theirs in zip(pattern, parts, strict=False)):
                if route.method == exchange.method:
                    fixed = tuple(theirs for mine, theirs in zip(pattern[:-1], parts, strict=False) if mine == PART)
                    exchange.tail = (*fixed, "/".join(rest)) if pattern[-1] == PART else fixed
                    return route
                methods.add(route.method)
        if methods:
            allow = ", ".join(sorted(methods))
            raise HttpError(405, "wrong_method", f"This path takes {allow}.", ((b"allow", allow.encode()),))
        raise HttpError(404, "not_found", "There is no such path here; see /openapi.json.")


_NOBODY = Tenant("nobody")

"""The transports of the MCP server: stdio for one client, streamable HTTP for many, by the HTTP service's rules."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import uvicorn
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams

from cleaner_sandbox.client import SandboxClient
from cleaner_sandbox.mcp.tools import INSTRUCTIONS, SandboxTools
from cleaner_sandbox.node.node import Node
from cleaner_sandbox.service.http import Arrivals, Exchange, HttpError, Receive, Scope, Send
from cleaner_sandbox.service.supervisor import BACKLOG
from cleaner_sandbox.service.tenants import Tenant, Tenants, refuse_browsers, unauthorized
from cleaner_sandbox.version import __version__

Opening = AbstractAsyncContextManager[Node | SandboxClient]
"""What `open_sandbox` returns."""
PATH: Final = "/mcp"
TENANT: Final = "cleaner_sandbox.tenant"
"""Where a request's scope holds who sent it."""
MOST_REQUESTS: Final = 1_024
"""Answered at the same time; more are answered 503."""
DRAIN_SECONDS: Final = 5
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def over_stdio(sandbox: Opening) -> None:
    """Serve the client at stdin and stdout until it closes stdin, or a signal comes."""
    if not asyncio.run(_over_stdio(sandbox)):
        os._exit(0)  # a thread still waits for a line of stdin, and nothing can end that


async def _over_stdio(sandbox: Opening) -> bool:
    """Return whether the client ended it."""
    stopped = asyncio.Event()
    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with _tools(sandbox) as tools:
        only = Tenant("stdio")
        serving = asyncio.ensure_future(_serve_streams(_server(tools, lambda _: only)))
        stopping = asyncio.ensure_future(stopped.wait())
        await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if serving.done():
            serving.result()
        return serving.done()


async def _serve_streams(server: Server) -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def over_http(
    sandbox: Opening,
    listening: socket.socket,
    host: str,
    token_file: str | None,
    ready: Callable[[str], None],
) -> None:
    """Serve on a bound socket until a signal comes; `ready` is called with the address when it answers."""
    asyncio.run(_over_http(sandbox, listening, host, Tenants.read(token_file), ready))


async def _over_http(
    sandbox: Opening,
    listening: socket.socket,
    host: str,
    tenants: Tenants,
    ready: Callable[[str], None],
) -> None:
    async with _tools(sandbox, len(tenants)) as tools:
        # Without state in the transport: what a client keeps is behind the handles of its sessions. And without the
        # transport's own check of hosts: ours takes its place.
        app = _server(tools, _sender).streamable_http_app(
            streamable_http_path=PATH,
            stateless_http=True,
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        name, port = listening.getsockname()[:2]
        address = f"http://{f'[{name}]' if ':' in name else name}:{port}{PATH}"
        await HttpServer(Guard(app, tenants, host), lambda: ready(address)).serve(sockets=[listening])


@contextlib.asynccontextmanager
async def _tools(sandbox: Opening, tenants: int = 1) -> AsyncIterator[SandboxTools]:
    async with sandbox as opened:
        if isinstance(opened, SandboxClient):
            await opened.require_answer()
        async with SandboxTools(opened, tenants) as tools:
            yield tools


def _server(tools: SandboxTools, tenant_of: Callable[[ServerRequestContext[Any]], Tenant]) -> Server:
    """The protocol's side of the tools."""

    async def list_tools(_: ServerRequestContext[Any], __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=tools.listed)

    async def call_tool(context: ServerRequestContext[Any], asked: CallToolRequestParams) -> CallToolResult:
        return await tools.call(asked.name, asked.arguments or {}, tenant_of(context))

    return Server(
        "cleaner-sandbox",
        version=__version__,
        title="cleaner-sandbox",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _sender(context: ServerRequestContext[Any]) -> Tenant:
    assert context.request is not None  # over HTTP there always is one
    tenant: Tenant = context.request.scope[TENANT]
    return tenant


class Guard:
    """Lets those in who may call, by the rules of a node's own HTTP service, and notes who each is."""

    def __init__(self, app: Callable[..., Any], tenants: Tenants, host: str) -> None:
        self._app, self._tenants, self._host = app, tenants, host
        self._arrivals = Arrivals(0, 0, 1)  # no body is read here

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request: the ASGI entry point."""
        if scope["type"] == "http":
            exchange = Exchange(scope, receive, send, self._arrivals)
            try:
                if self._tenants.anonymous is not None:
                    refuse_browsers(exchange.header(b"host"), exchange.header(b"origin"), self._host)
                tenant = self._tenants.find(exchange.header(b"authorization"))
                if tenant is None:
                    raise unauthorized()
            except HttpError as error:
                await exchange.refuse(error)
                return
            scope[TENANT] = tenant
        await self._app(scope, receive, send)


class HttpServer(uvicorn.Server):
    """Says when it answers, and stops at the first signal."""

    def __init__(self, app: Guard, ready: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                lifespan="on",
                access_log=False,
                log_config=None,
                ws="none",
                server_header=False,
                proxy_headers=False,
                backlog=BACKLOG,
                limit_concurrency=MOST_REQUESTS,
                timeout_graceful_shutdown=DRAIN_SECONDS,
            )
        )
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to answer."""
        await super().startup(sockets)
        self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at a signal. Uvicorn itself would then die by the same signal, before the sandbox is shut."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._stop)
        yield

    def _stop(self) -> None:
        self.should_exit = True

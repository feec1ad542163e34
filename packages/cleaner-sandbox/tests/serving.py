"""A node served inside the test's own process, and a small client that hides nothing."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestServer

from cleaner_sandbox import Node
from cleaner_sandbox.service.app import App
from cleaner_sandbox.service.observe import CallLog
from cleaner_sandbox.service.server import Server, build
from cleaner_sandbox.service.supervisor import ServiceConfig

P = ParamSpec("P")
SECONDS = 60.0


def asynchronous(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test that is a coroutine, bounded in time."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), SECONDS))

    return run


@contextlib.asynccontextmanager
async def served(
    node: Node, token_file: Path | None = None, connections: int = 1_000, **settings: Any
) -> AsyncIterator[tuple[str, App]]:
    """The address of a node's service, and its application."""
    tokens = None if token_file is None else str(token_file)
    app = build(
        ServiceConfig(node.config, token_file=tokens, drain_seconds=1, **settings),
        node,
        connections,
        log=CallLog(io.BytesIO()),
    )
    listening = socket.create_server(("127.0.0.1", 0), backlog=4096)
    server = Server(app)
    # Not `serve`: that one takes over the process' signals.
    task = asyncio.create_task(server._serve(sockets=[listening]))
    try:
        await until(lambda: server.started)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", app
    finally:
        server.should_exit = True
        await task
        listening.close()


@contextlib.asynccontextmanager
async def opened(node: Node, token_file: Path | None = None, **settings: Any) -> AsyncIterator[tuple[str, App]]:
    """The same for a node that isn't open yet."""
    async with node, served(node, token_file, **settings) as serving:
        yield serving


@contextlib.asynccontextmanager
async def scripted(*statuses: int) -> AsyncIterator[tuple[str, list[Any]]]:
    """The address of what answers like this, a node or a proxy, and then as a node would; and what it was sent."""
    left, sent = list(statuses), list[Any]()

    async def answer(request: web.Request) -> web.Response:
        sent.append(await request.json())
        if left:
            return web.Response(status=left.pop(0), text="<h1>no JSON here</h1>")
        if request.path == "/v1/sessions":
            return web.json_response({"session": "0" * 32}, status=201)
        calls = enumerate(sent[-1].get("calls", ()))
        lines = [json.dumps({"id": call["id"], "index": index, "status": "ok"}) + "\n" for index, call in calls]
        return web.Response(text="".join(lines))

    app = web.Application()
    app.router.add_post("/{path:.*}", answer)
    async with TestServer(app) as server:
        yield str(server.make_url("")).rstrip("/"), sent


async def until(condition: Callable[[], bool | Awaitable[bool]], seconds: float = 20.0) -> None:
    """Wait for a condition that something else brings about."""
    async with asyncio.timeout(seconds):
        while True:
            holds = condition()
            if holds if isinstance(holds, bool) else await holds:
                return
            await asyncio.sleep(0.005)


class Caller:
    """Sends requests as they are written."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self._url = url
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    async def __aenter__(self) -> Caller:
        self.http = aiohttp.ClientSession(self._url, headers=self._headers)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.close()

    async def post(self, path: str, body: object) -> tuple[int, Any]:
        async with self.http.post(path, json=body) as response:
            return response.status, await response.json(content_type=None)

    async def get(self, path: str) -> tuple[int, Any]:
        async with self.http.get(path) as response:
            return response.status, await response.json(content_type=None)

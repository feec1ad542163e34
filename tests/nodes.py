"""Sandbox nodes for tests: what a test needs of the machine, and a node behind an address in the test's own process."""

from __future__ import annotations

import asyncio
import contextlib
import io
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import pytest

from cleaner_sandbox import Node, Tier, choose_tier, probe
from cleaner_sandbox.service.app import App
from cleaner_sandbox.service.observe import CallLog
from cleaner_sandbox.service.server import Server, build
from cleaner_sandbox.service.supervisor import ServiceConfig

P = ParamSpec("P")
SECONDS = 60.0


def needs(tier: Tier) -> None:
    """Skip a test where the machine can't isolate that strongly."""
    highest = choose_tier(probe(), None, Tier.NONE)
    if highest < tier:
        pytest.skip(f"this machine gives tier {highest.name}")


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


async def until(condition: Callable[[], bool | Awaitable[bool]], seconds: float = 20.0) -> None:
    """Wait for a condition that something else brings about."""
    async with asyncio.timeout(seconds):
        while True:
            holds = condition()
            if holds if isinstance(holds, bool) else await holds:
                return
            await asyncio.sleep(0.005)

"""A chat API on loopback, whose answers are a rule's; it serves in a thread, because a command has the main one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Says = Callable[[int, dict[str, Any]], dict[str, Any]]
"""(number of the request, its body) to a choice: a message and a finish reason."""


def said(content: str, finish_reason: str = "stop") -> dict[str, Any]:
    return {"message": {"role": "assistant", "content": content}, "finish_reason": finish_reason}


@dataclass
class ChatServer:
    says: Says
    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.bodies.append(body)
        return web.json_response({"choices": [self.says(len(self.bodies) - 1, body)]})


@contextmanager
def chat_server(says: Says) -> Iterator[ChatServer]:
    server = ChatServer(says)
    loop = asyncio.new_event_loop()
    ready = threading.Event()

    async def serve() -> web.AppRunner:
        app = web.Application()
        app.add_routes([web.post("/v1/chat/completions", server.answer)])
        runner = web.AppRunner(app, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return runner

    def run() -> None:
        asyncio.set_event_loop(loop)
        runner = loop.run_until_complete(serve())
        ready.set()
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(30)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)

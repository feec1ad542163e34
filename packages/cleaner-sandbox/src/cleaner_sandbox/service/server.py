"""The server of a node: the process that speaks HTTP and owns the zygotes and slots.

The supervisor starts it on a socket that is already bound, and starts it again on the same socket if it dies, so that
callers see a pause rather than a refused connection. Run as
`python -m cleaner_sandbox.service.server <socket fd> <settings as JSON>`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ipaddress
import logging
import signal
import socket
import sys
from collections.abc import Iterator

import msgspec
import uvicorn
import uvloop

from cleaner_sandbox.inside import kernel
from cleaner_sandbox.isolation.tiers import TierError
from cleaner_sandbox.node.config import connections_held
from cleaner_sandbox.node.node import Node
from cleaner_sandbox.node.zygotes import ZygoteError
from cleaner_sandbox.protocol.wire import encode
from cleaner_sandbox.service.about import About, add_about
from cleaner_sandbox.service.admission import Connection, unheld
from cleaner_sandbox.service.app import App
from cleaner_sandbox.service.code_judge import add_code_judge
from cleaner_sandbox.service.fusion import add_fusion
from cleaner_sandbox.service.observe import CallLog
from cleaner_sandbox.service.runs import add_runs
from cleaner_sandbox.service.sessions import add_sessions
from cleaner_sandbox.service.supervisor import BACKLOG, BROKEN, UNUSABLE, ServiceConfig, from_text
from cleaner_sandbox.service.tenants import Tenants

NICE = -10
"""What the event loop and the zygotes do for all calls is short, and every call waits for it."""


def build(config: ServiceConfig, node: Node, connections: int, log: CallLog) -> App:
    """The whole service of a node."""
    app = App(config, node, Tenants.read(config.token_file), connections, log)
    add_runs(app)
    add_sessions(app)
    add_about(app, connections)
    add_code_judge(app)
    add_fusion(app)
    return app


class Server(uvicorn.Server):
    """Stops taking calls at the first signal, lets those that run end, and is gone."""

    def __init__(self, app: App) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=Connection,
                lifespan="off",
                access_log=False,
                log_config=None,
                ws="none",
                server_header=False,
                proxy_headers=False,
                backlog=BACKLOG,
                timeout_keep_alive=75,
                timeout_graceful_shutdown=app.config.drain_seconds,
            )
        )
        self._app = app

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Drain at SIGTERM and SIGINT. Uvicorn itself would then die by the same signal, before the node is shut."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        yield

    def _stop(self) -> None:
        self.force_exit = self.should_exit  # the second signal doesn't wait for runs to end
        self.should_exit = True
        self._app.queue.drain()


async def serve(config: ServiceConfig, listening: socket.socket) -> None:
    """Open the node and serve it until a signal comes."""
    connections = connections_held(config.node)
    log = CallLog(sys.stdout.buffer)
    async with Node(config.node) as node:
        app = build(config, node, connections, log)
        server = Server(app)
        if (bound := await unheld(server.config)) is not None:
            said = f"with uvicorn {uvicorn.__version__} the node does not keep a bound on connections: {bound}"
            if not _is_loopback(listening):
                raise ValueError(f"{said}; install a version that cleaner-sandbox names, or bind to a loopback address")
            log.add(encode({"event": "unbounded", "message": said}))
        health = About(app, connections).now()
        gc.collect()
        gc.freeze()  # what lasts as long as the service needn't be looked at again and again
        log.add(encode({"event": "ready", "address": listening.getsockname()[:2], "health": health}))
        try:
            await server.serve(sockets=[listening])
        finally:
            log.flush()


def main(arguments: list[str]) -> int:
    """Serve on an inherited socket."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    listening = socket.socket(fileno=int(arguments[0]))
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    kernel.go_first(NICE)
    try:
        config = from_text(arguments[1])
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(config, listening))
    except (TierError, ValueError, msgspec.DecodeError) as error:
        _say("unusable", error)
        return UNUSABLE
    except ZygoteError as error:
        _say("broken", error)
        return BROKEN
    return 0


def _is_loopback(listening: socket.socket) -> bool:
    return ipaddress.ip_address(str(listening.getsockname()[0]).partition("%")[0]).is_loopback


def _say(event: str, error: Exception) -> None:
    sys.stdout.write(encode({"event": event, "message": str(error)}).decode() + "\n")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

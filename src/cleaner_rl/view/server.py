"""Serving: one thread for HTTP, one for the index, on loopback alone."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from threading import Thread

import uvicorn

from cleaner_rl.view.app import Application
from cleaner_rl.view.library import Library
from cleaner_rl.view.sources import StoreFile

HOST = "127.0.0.1"
SOON = 1.0
"""Seconds that the first page waits for the index: a small store is whole when it is seen."""


def bind(port: int) -> socket.socket:
    """A socket that only this machine reaches; 0 is any free port."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind((HOST, port))
    listening.listen()  # whoever comes before the server does waits for it
    return listening


def serve(library: Library, listening: socket.socket, done: Callable[[StoreFile], None] = lambda _: None) -> None:
    """Serve until interrupted. The index is brought up to date meanwhile; what is there already can be seen."""
    indexing = Thread(target=library.update, args=(done,), name="index", daemon=True)
    indexing.start()
    library.index.begun.wait(SOON)
    config = uvicorn.Config(
        Application(library), log_level="warning", access_log=False, server_header=False, lifespan="off", ws="none"
    )
    with suppress(KeyboardInterrupt):  # which uvicorn hands on once it has ended
        uvicorn.Server(config).run([listening])

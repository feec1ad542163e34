"""Serving: one thread for HTTP, one for the index, on loopback alone."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.abc import MetaPathFinder
from threading import Thread

import pyarrow as pa
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


class _NoPandas(MetaPathFinder):
    """Finds everything but pandas."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:  # noqa: ARG002
        """Nothing: others may look for it. Or an end to the looking."""
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname)


def without_pandas() -> None:
    """Have pyarrow believe that there is no pandas, unless it is loaded already.

    pyarrow imports it, where it is installed, the first time that it is given a list: to see whether that is a data
    frame. Here none ever is, and the first page of a large store would come half a second later.
    """
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([])  # it looks only once
    finally:
        sys.meta_path.remove(finder)


def run(library: Library, listening: socket.socket, done: Callable[[StoreFile], None] = lambda _: None) -> None:
    """Serve until interrupted. The index is brought up to date meanwhile; what is there already can be seen."""
    without_pandas()
    indexing = Thread(target=library.update, args=(done,), name="index", daemon=True)
    indexing.start()
    library.index.begun.wait(SOON)
    config = uvicorn.Config(
        Application(library), log_level="warning", access_log=False, server_header=False, lifespan="off", ws="none"
    )
    with suppress(KeyboardInterrupt):  # which uvicorn hands on once it has ended
        uvicorn.Server(config).run([listening])

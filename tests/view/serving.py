"""A viewer on loopback, in a thread, for as long as a block runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import uvicorn

from cleaner_rl.view.app import Application
from cleaner_rl.view.library import Library
from cleaner_rl.view.server import bind


@contextmanager
def served(library: Library) -> Iterator[str]:
    listening = bind(0)
    config = uvicorn.Config(Application(library), log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    thread = Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join(10)

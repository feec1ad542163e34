"""Sandbox nodes as processes of their own, to be killed and started again at the same addresses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from benchmarks.serving import free_port
from cleaner_rl.train.recipe.settings import SandboxSettings


class Nodes:
    """Some nodes with the same settings; leaving the block ends them."""

    def __init__(self, settings: SandboxSettings, count: int, folder: Path) -> None:
        self._settings = msgspec.json.encode(settings).decode()
        self._folder = folder
        self._ports = [free_port() for _ in range(count)]
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def addresses(self) -> list[str]:
        """Theirs, whether they run or not."""
        return [f"http://127.0.0.1:{port}" for port in self._ports]

    @property
    def said(self) -> int:
        """How much stands in their logs: it grows with each program."""
        return sum(log.stat().st_size for log in self._folder.glob("node-*.log"))

    def __enter__(self) -> Nodes:
        for number in range(len(self._ports)):
            self.start(number)
        return self

    def __exit__(self, *_error: object) -> None:
        for number in list(self._running):
            self.kill(number, signal.SIGTERM)

    def start(self, number: int) -> None:
        """Start one, and wait until it serves."""
        log = self._folder / f"node-{number}-{time.time():.0f}.log"
        serve = [sys.executable, "-m", "cleaner_rl.train.launch.node", self._settings, str(self._ports[number])]
        with log.open("w") as file:
            self._running[number] = subprocess.Popen(serve, stdout=file, stderr=file, start_new_session=True)
        while not log.read_text().startswith('{"event":"ready"'):
            if self._running[number].poll() is not None:
                raise RuntimeError(f"a node didn't come up: {log.read_text()}")
            time.sleep(0.1)

    def kill(self, number: int, by: int = signal.SIGKILL) -> None:
        """End one and all its processes."""
        node = self._running.pop(number)
        with suppress(ProcessLookupError):
            os.killpg(node.pid, by)
        node.wait()

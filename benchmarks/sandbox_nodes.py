"""Starts nodes for the benchmarks, as operators do, and looks at their processes from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024


@dataclass
class NodeProcess:
    """One node in its own processes; used in a `with` statement."""

    slots: int = 4
    port: int = 0
    options: tuple[str, ...] = ()
    url: str = ""
    starting: bool = False
    _process: subprocess.Popen[bytes] | None = None
    _log: IO[bytes] = field(default_factory=tempfile.TemporaryFile)

    def __enter__(self) -> NodeProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._log.close()

    def start(self) -> None:
        """Start it, on the same port if it has run before, and wait until it answers."""
        self.starting = True
        self._log.seek(0)
        self._log.truncate()
        command = [sys.executable, "-c", "from cleaner_rl.cli import main; main()", "sandbox", "serve"]
        command += ["--port", str(self.port), "--slots", str(self.slots), *self.options]
        self._process = subprocess.Popen(command, stdout=self._log)
        self.port = int(self._ready()["address"][1])
        self.url = f"http://127.0.0.1:{self.port}"
        self.starting = False

    def _ready(self) -> dict[str, Any]:
        # Not always the first line: a front that is killed as it starts is logged before the next one is ready.
        for _ in range(600):
            *lines, _unfinished = os.pread(self._log.fileno(), 65_536, 0).split(b"\n")
            for event in map(json.loads, lines):
                if event["event"] == "ready":
                    return dict(event)
            time.sleep(0.1)
        raise TimeoutError("the node did not start")

    @property
    def pid(self) -> int:
        """Of the keeper."""
        assert self._process is not None
        return self._process.pid

    @property
    def front(self) -> int | None:
        """The process that speaks HTTP; None while there is none."""
        return next(iter(children(self.pid)), None)

    @property
    def zygotes(self) -> list[int]:
        """The front's own children."""
        return [] if self.front is None else children(self.front)

    @property
    def supervisors(self) -> list[int]:
        """The zygotes' children: one per slot."""
        return [pid for zygote in self.zygotes for pid in children(zygote)]

    def kill(self) -> None:
        """Kill the keeper, and with it the whole node."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def stop(self) -> None:
        """Ask it to stop, and wait until it has."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(timeout=120)

    def health(self) -> dict[str, Any]:
        """What the node says of itself."""
        with urllib.request.urlopen(f"{self.url}/healthz", timeout=60) as response:
            health: dict[str, Any] = json.load(response)
            return health

    def front_mb(self) -> float:
        """Resident memory of the front."""
        return resident_mb(self.front) if self.front is not None else 0.0

    def cpu_seconds(self) -> float:
        """CPU time of the node so far, all its processes and all that have ended under them."""
        return sum(cpu_seconds(pid) for pid in descendants(self.pid))


def children(pid: int) -> list[int]:
    """Processes that a process has started itself."""
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def descendants(pid: int) -> list[int]:
    """A process and all below it."""
    return [pid, *(each for child in children(pid) for each in descendants(child))]


def resident_mb(pid: int) -> float:
    """Resident memory of one process."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_KB / 1024
    except OSError:
        return 0.0


def cpu_seconds(pid: int) -> float:
    """CPU time of one process, and of its children that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")

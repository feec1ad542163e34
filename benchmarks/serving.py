"""Servers in processes of their own, which end with whoever started them: vLLM, and what it says it was asked and gave.

Part      any server: can be killed, and started again on its port
Served    a vLLM server
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SECONDS = 240.0
"""For a server to start, on a machine with other things to do."""
DETAILS = re.compile(r"Request (\S+) details: prompt: .*?prompt_token_ids: (\[[^\]]*\])")
GENERATED = re.compile(r"Generated response (\S+): output: .*?output_token_ids: (\[[^\]]*\])")
LEASH = 'exec 3<&0 </dev/null; (read -r gone <&3; kill -9 0) & exec "$@" 3<&-'
"""Becomes a command whose whole process group is killed once nobody holds the other end of its standard input."""


def leashed(command: Sequence[object], log: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """A process in a group of its own that does not outlive this one, however this one ends."""
    with log.open("ab") as output:
        return subprocess.Popen(
            ["sh", "-c", LEASH, "sh", *map(str, command)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | environment,
            start_new_session=True,
        )


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a leashed process and all of its group at once."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)
    assert process.stdin is not None
    process.stdin.close()


@dataclass
class Part:
    """A server, running from `start` to `kill`."""

    url: str
    log: Path
    command: Sequence[object]
    environment: Mapping[str, str]
    health: str
    """Its route that says whether it serves."""
    process: subprocess.Popen[bytes] = field(init=False)

    def start(self) -> None:
        """Start it, without waiting for it to serve."""
        self.process = leashed(self.command, self.log, self.environment)

    def kill(self) -> None:
        """End it at once, with all its processes."""
        kill(self.process)

    @property
    def cpu_seconds(self) -> float:
        """What all its processes have used."""
        ticks = sum(int(values[11]) + int(values[12]) for values in self._processes().values())
        return ticks / os.sysconf("SC_CLK_TCK")

    @property
    def pids(self) -> list[int]:
        """All its processes."""
        return list(self._processes())

    def _processes(self) -> dict[int, list[str]]:
        """The fields of each one's `stat` behind its name: state, parent, group; from the 12th on, ticks."""
        found = {}
        for each in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                values = each.read_text().rpartition(")")[2].split()  # a name may hold anything
                if int(values[2]) == self.process.pid:
                    found[int(each.parent.name)] = values
        return found

    @property
    def serves(self) -> bool:
        """Whether it answers now."""
        with contextlib.suppress(urllib.error.URLError, OSError):
            urllib.request.urlopen(f"{self.url}{self.health}", timeout=5).close()
            return True
        return False

    def await_health(self) -> None:
        """Wait until it serves."""
        deadline = time.monotonic() + SECONDS
        while not self.serves:
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.url} ended with {self.process.returncode}:\n{self.log.read_text()[-3000:]}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.url} did not start within {SECONDS:g} s:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.2)


@contextlib.contextmanager
def running(*parts: Part) -> Iterator[None]:
    """Start them side by side, wait until all serve, and end them."""
    with contextlib.ExitStack() as stack:
        for part in parts:
            part.start()
            stack.callback(part.kill)
        for part in parts:
            part.await_health()
        yield


@dataclass
class Record:
    """One request, as the server wrote it into its own log."""

    name: str
    prompt: list[int]
    output: list[int]
    scoring: bool


@dataclass
class Served(Part):
    """A vLLM server."""

    model: Path

    def records(self, name: str) -> list[Record]:
        """The server's own record of the requests whose name holds this one, in their order."""
        prompts: dict[str, list[int]] = {}
        outputs: dict[str, list[int]] = {}
        for line in self.log.read_text(errors="replace").splitlines():
            if found := DETAILS.search(line):
                prompts[found[1]] = ast.literal_eval(found[2])
            elif found := GENERATED.search(line):
                outputs[found[1]] = ast.literal_eval(found[2])
        return [Record(each, prompts[each], outputs[each], "/score/" in each) for each in outputs if name in each]


def vllm(
    model: Path, folder: Path, *options: object, port: int | None = None, dtype: str = "float32", record: bool = True
) -> Served:
    """A server for a model, on a free port of this machine. `record`: whether its log holds every request's ids."""
    port = port or free_port()
    log = folder / f"vllm-{port}-{time.monotonic_ns()}.log"
    command: list[Any] = [Path(sys.executable).with_name("vllm"), "serve", model, "--host", "127.0.0.1", "--port", port]
    command += ["--dtype", dtype, "--enforce-eager", "--block-size", "32", "--max-model-len", "4096"]
    # vLLM 0.27.1 on CPUs dies of a seeded request whose prompt is computed in chunks.
    command += ["--no-enable-chunked-prefill", "--max-num-batched-tokens", "4096"]
    command += ["--enable-prompt-tokens-details", *options]
    if record:
        command += ["--enable-log-requests", "--enable-log-outputs"]
    environment = {
        "VLLM_LOGGING_LEVEL": "DEBUG" if record else "WARNING",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        # By itself each server of a machine binds its threads to the same cores.
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        # Its rows for cached tokens are memory as it was found; as zeros they can be spelt in JSON.
        "MALLOC_PERTURB_": "255",
    }
    return Served(f"http://127.0.0.1:{port}", log, command, environment, "/health", model)


@contextlib.contextmanager
def serve(model: Path, folder: Path, *options: object, **settings: Any) -> Iterator[Served]:
    """The same, running."""
    served = vllm(model, folder, *options, **settings)
    with running(served):
        yield served


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])

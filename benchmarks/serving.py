"""A vLLM server in a process of its own, and what it says it was asked and gave."""

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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS = 240.0
"""For a server to start, on a machine with other things to do."""
DETAILS = re.compile(r"Request (\S+) details: prompt: .*?prompt_token_ids: (\[[^\]]*\])")
GENERATED = re.compile(r"Generated response (\S+): output: .*?output_token_ids: (\[[^\]]*\])")


@dataclass
class Record:
    """One request, as the server wrote it into its own log."""

    name: str
    prompt: list[int]
    output: list[int]
    scoring: bool


@dataclass
class Served:
    """A running server."""

    model: Path
    url: str
    log: Path
    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        """End it at once, with all its processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)

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


@contextlib.contextmanager
def serve(
    model: Path, folder: Path, *options: object, port: int | None = None, dtype: str = "float32", record: bool = True
) -> Iterator[Served]:
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
    settings = {
        "VLLM_LOGGING_LEVEL": "DEBUG" if record else "WARNING",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            list(map(str, command)),
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | settings,
            start_new_session=True,
        )
    served = Served(model, f"http://127.0.0.1:{port}", log, process)
    try:
        await_health(served)
        yield served
    finally:
        served.kill()


def await_health(served: Served) -> None:
    """Wait until it serves."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if served.process.poll() is not None:
            raise RuntimeError(f"vLLM ended with {served.process.returncode}:\n{served.log.read_text()[-3000:]}")
        with contextlib.suppress(urllib.error.URLError, OSError):
            urllib.request.urlopen(f"{served.url}/health", timeout=5).close()
            return
        time.sleep(0.2)
    raise RuntimeError(f"vLLM did not start within {SECONDS:g} s:\n{served.log.read_text()[-3000:]}")


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])

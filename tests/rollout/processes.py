"""Processes of a run: the command, engines and sandbox nodes, each of which a test may kill."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.serving import free_port
from cleaner_rl.tasks import Message, Task

ROOT = Path(__file__).parents[2]
CLI = (sys.executable, "-c", "from cleaner_rl.cli import main; main()")


def write_tasks(file: Path, count: int) -> Path:
    tasks = [Task(f"made/{number}", (Message("user", f"Task {number}?"),), "choice", "C") for number in range(count)]
    file.write_text("".join(json.dumps(task.to_json()) + "\n" for task in tasks))
    return file


@contextlib.contextmanager
def started(*command: Any, log: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process with a session of its own, ended with all its children when the block ends."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    settings = {"PYTHONPATH": path, "TRANSFORMERS_VERBOSITY": "error"} | environment
    with log.open("ab") as output:
        process = subprocess.Popen(
            list(map(str, command)),
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | settings,
            cwd=ROOT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """All of its processes, at once."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)


def await_answer(url: str, process: subprocess.Popen[bytes], seconds: float = 60.0) -> str:
    """Wait until an address answers."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(urllib.error.URLError, OSError):
            urllib.request.urlopen(url, timeout=5).close()
            return url
        time.sleep(0.05)
    raise RuntimeError(f"{url} does not answer")


@contextlib.contextmanager
def fake_engine(folder: Path, tokenizer: Path, seconds: float = 0.02, port: int = 0) -> Iterator[tuple[str, Any, Path]]:
    """A stand-in for vLLM: its address, its process, and its own record."""
    port = port or free_port()
    record = folder / f"engine-{port}.jsonl"
    command = (sys.executable, "-m", "tests.rollout.fake_vllm", tokenizer, port, record, seconds)
    with started(*command, log=folder / f"engine-{port}.log") as process:
        await_answer(f"http://127.0.0.1:{port}/health", process)
        yield f"http://127.0.0.1:{port}", process, record


@contextlib.contextmanager
def sandbox_node(folder: Path, port: int = 0) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    port = port or free_port()
    with started(*CLI, "sandbox", "serve", "--port", port, "--slots", 2, log=folder / f"node-{port}.log") as process:
        await_answer(f"http://127.0.0.1:{port}/healthz", process)
        yield f"http://127.0.0.1:{port}", process

"""A runner without any of the sandbox's ideas, for the proof that the attacks are attacks.

It is put together from the habits of runners in the field: the program runs in the harness's own interpreter, with the
service's environment and descriptors, in a folder that all calls share; the deadline is the program's own alarm, the
memory limit a soft one; the result is printed after an end marker among the output, and a process that didn't print one
counts as a broken worker. `proof` runs the attacks on the verdict against it, which isolation alone doesn't stop, in a
throw-away namespace. Never use it for anything else.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
from pathlib import Path
from typing import NoReturn

from cleaner_sandbox.protocol import RunOutcome, RunRequest, SessionRequest
from cleaner_sandbox.protocol.results import RunResult, RunStatus

END_MARKER = "@@E"

_HARNESS = """
import io, json, random, resource, signal, sys, traceback
request = json.loads(sys.stdin.readline())
sys.stdin = io.StringIO(request["stdin"])
def late(*_):
    raise TimeoutError
signal.signal(signal.SIGALRM, late)
signal.alarm(request["seconds"])
resource.setrlimit(resource.RLIMIT_AS, (request["memory"], resource.getrlimit(resource.RLIMIT_AS)[1]))
random.seed(0)
status, text = "ok", ""
try:
    exec(compile(request["code"], "main.py", "exec"), {"__name__": "__main__"})
except SystemExit as error:
    status = "ok" if not error.code else "error"
except TimeoutError:
    status = "timeout"
except MemoryError:
    status = "memory"
except BaseException as error:
    status, text = "error", traceback.format_exc()
print()
print("@@E")
print(json.dumps({"status": status, "error": text}))
"""


class NaiveRunner:
    """Runs programs as one should not."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def run(self, request: RunRequest) -> RunOutcome:
        """Run one program. Whatever can go wrong here is called a fault, or raised."""
        for path, data in request.files.items():
            (self._folder / path).write_bytes(data)
        limits = request.limits
        stdin = request.stdin.decode() if isinstance(request.stdin, bytes) else request.stdin or ""
        message = {
            "code": request.code,
            "stdin": stdin,
            "seconds": max(1, math.ceil(limits.wall_seconds)) if limits else 10,
            "memory": (limits.memory_mb if limits else 512) + 256 << 20,
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            _HARNESS,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=self._folder,
            close_fds=False,
        )
        try:
            output, _ = await process.communicate(json.dumps(message).encode() + b"\n")
        except asyncio.CancelledError:
            process.kill()
            raise
        files = {path: (self._folder / path).read_bytes() for path in request.fetch if (self._folder / path).exists()}
        return RunOutcome(_result(output.decode()), files)

    async def open_session(self, request: SessionRequest | None = None) -> NoReturn:
        """There are none."""
        raise NotImplementedError


def _result(text: str) -> RunResult:
    output, marker, rest = text.partition(f"\n{END_MARKER}\n")
    if not marker:
        return RunResult(RunStatus.FAULT, text, explanation="The worker died.")
    told = json.loads(rest.splitlines()[0])
    return RunResult(RunStatus(told["status"]), output.removesuffix("\n"), explanation=told["error"])

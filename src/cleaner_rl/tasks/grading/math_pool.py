"""Real processes for the verifier, each with a deadline that the parent holds it to.

Some answers keep any algebra system busy for ever, and no signal handler or thread can stop it there. So each question
goes to a process, the parent waits on the pipe until the deadline, then kills with SIGKILL and puts a new process in
its place. Nothing here uses signals in the parent or needs the main thread: `ask` can be called from any thread, and
`ask_async` from any event loop.

Processes start when they are first needed, which takes a second or two (sympy); that time has its own, wider limit.

Limits: POSIX only. Memory is limited to 4 GiB of address space a process, fixed in `math_worker`. The deadline is wall
time: on a machine loaded many times over, a slow but honest comparison becomes a fault, never a wrong answer.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

WORKER = Path(__file__).with_name("math_worker.py")
START_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class MathVerdict:
    """What the verifier said."""

    equal: bool | None
    """None: it could not say."""
    reason: str


class MathPool:
    """Compares answers in up to `workers` verifier processes."""

    def __init__(self, workers: int = 2, seconds: float = 10.0) -> None:
        if workers < 1 or not seconds > 0:
            raise ValueError(f"workers={workers}, seconds={seconds}: take at least one worker and a time above 0")
        if find_spec("math_verify") is None:
            raise ImportError("grading mathematics needs math-verify: pip install 'cleaner-rl[eval]'")
        self.seconds = seconds
        """For one answer, from when the verifier got it."""
        self.killed = 0
        """Verifiers that had to be replaced."""
        self._idle: list[_Worker] = []
        self._places = threading.BoundedSemaphore(workers)
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="math-pool")
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, truths: Sequence[str], answer: str) -> MathVerdict:
        """Return whether an answer equals one of the truths; waits for a free process, then at most `seconds`."""
        with self._places:
            try:
                worker = self._take()
            except OSError as error:
                return MathVerdict(None, f"The verifier could not be started ({type(error).__name__}).")
            verdict = worker.ask(truths, answer, self.seconds)
            self._put_back(worker)
        return verdict

    async def ask_async(self, truths: Sequence[str], answer: str) -> MathVerdict:
        """Do the same as `ask` without blocking the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.ask, truths, answer)

    def close(self) -> None:
        """End all processes. Questions still being asked end with their own deadline."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.kill()
        self._threads.shutdown(wait=False)

    def _take(self) -> _Worker:
        with self._lock:
            if self._closed:
                raise RuntimeError("this pool is closed; make a new one")
            if self._idle:
                return self._idle.pop()
        return _Worker()

    def _put_back(self, worker: _Worker) -> None:
        with self._lock:
            usable = worker.in_step and not self._closed
            if usable:
                self._idle.append(worker)
            elif not worker.in_step:
                self.killed += 1
        if not usable:
            worker.kill()


class _Worker:
    """One verifier process, used by one thread at a time."""

    def __init__(self) -> None:
        # -P: the folder of the worker's file must not shadow the standard library.
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._ready = False
        self._pending = b""
        self.in_step = True
        """Whether each question so far got its answer; otherwise the process is good for nothing more."""

    def ask(self, truths: Sequence[str], answer: str, seconds: float) -> MathVerdict:
        """One question; a fault if the process dies or is late."""
        if not self._ready:
            if not self._line(START_SECONDS):
                return self._lost("did not start")
            self._ready = True
        question = json.dumps({"truths": list(truths), "answer": answer, "seconds": seconds})
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(question.encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            return self._lost("died")
        line = self._line(seconds)
        if not line:
            return self._lost(f"ran out of its {seconds:g} s" if line is None else "died")
        said = json.loads(line)
        if "fault" in said:
            return MathVerdict(None, said["fault"])
        return MathVerdict(said["equal"], said["reason"])

    def kill(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except OSError:  # unsent bytes for a process that is gone
                continue
        self._process.wait()

    def _lost(self, how: str) -> MathVerdict:
        self.in_step = False
        return MathVerdict(None, f"The verifier {how}.")

    def _line(self, seconds: float) -> bytes | None:
        """The next line from the process; nothing if the process ends first, None if the time does."""
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        poll = select.poll()  # unlike `select`, it knows descriptors above 1023
        poll.register(fd, select.POLLIN)
        deadline = time.monotonic() + seconds
        while b"\n" not in self._pending:
            left = deadline - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                return None
            chunk = os.read(fd, 65_536)
            if not chunk:
                return b""
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        return line

"""Real processes for the verifier, and the rule for answers that it can't finish.

Some answers keep any algebra system busy for ever, and no signal handler or thread can stop it there. So each question
goes to a process with a limit on CPU time and memory that the kernel enforces (`math_worker`). Nothing here uses
signals in the parent or needs the main thread: `ask` can be called from any thread, `ask_async` from any event loop.

A question that exhausts a limit is judged, because a model could otherwise write such answers to escape its reward:

1. It is asked again, alone, in a process of its own and with `MORE_TIME` times the CPU time.
2. If that isn't enough, the references are compared with themselves and with a plain number under the same limits. If
   that fails too, the task is at fault. Otherwise the answer is what costs too much, and it is wrong.

Such a verdict is remembered, so that a model which repeats itself doesn't pay with minutes of CPU time per answer.
A fault is only a verifier that is broken: it doesn't start, was killed from outside, or got no CPU.

Processes start when they are first needed, which takes a second or two (sympy); that time has its own, wider limit.

Limits: POSIX only. Memory is limited to 4 GiB of address space per process, fixed in `math_worker`.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

WORKER = Path(__file__).with_name("math_worker.py")
START_SECONDS = 120.0
MORE_TIME = 4
"""How much more CPU time a question gets that is asked again, alone."""
WALL_FACTOR = 60
"""Wall time for each second of CPU time: a process that gets less of a core than this is the machine's fault."""
REMEMBERED = 4_096
OWN_DEATHS = {
    signal.SIGPROF: "ran out of {seconds:g} s of CPU time",
    signal.SIGSEGV: "overflowed its stack",
    signal.SIGABRT: "aborted",
    signal.SIGBUS: "ran out of memory",
    signal.SIGFPE: "divided by zero",
}
"""Deaths that a question causes by itself. Others come from outside."""


@dataclass(frozen=True, slots=True)
class MathVerdict:
    """What the verifier said."""

    equal: bool | None
    """None: it could not say."""
    reason: str
    task_fault: bool = False
    """Whether it could not say because of the references, so that asking again is useless."""


class MathPool:
    """Compares answers in up to `workers` verifier processes, and one more for questions that are asked again."""

    def __init__(self, workers: int = 2, seconds: float = 2.0) -> None:
        if workers < 1 or not seconds > 0:
            raise ValueError(f"workers={workers}, seconds={seconds}: take at least one worker and a time above 0")
        if not available():
            raise ImportError(MISSING)
        self.seconds = seconds
        """CPU time for one answer; `MORE_TIME` times as much if it is asked again."""
        self.killed = 0
        """Verifiers that had to be replaced."""
        self.asked_again = 0
        """Questions that were asked a second time, alone."""
        self._idle: list[_Worker] = []
        self._places = threading.BoundedSemaphore(workers)
        self._lock = threading.Lock()
        self._alone = threading.Lock()
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="math-pool")
        # A thread of their own: honest answers don't wait behind those that need minutes.
        self._slow_thread = ThreadPoolExecutor(1, thread_name_prefix="math-pool-alone")
        self._remembered: OrderedDict[tuple[tuple[str, ...], str], MathVerdict] = OrderedDict()
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, truths: Sequence[str], answer: str) -> MathVerdict:
        """Return whether an answer equals one of the truths; waits for a free process."""
        try:
            return self._first(truths, answer)
        except _CostError:
            return self._again(truths, answer)

    async def ask_async(self, truths: Sequence[str], answer: str) -> MathVerdict:
        """Do the same as `ask` without blocking the event loop."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, self._first, truths, answer)
        except _CostError:
            return await loop.run_in_executor(self._slow_thread, self._again, truths, answer)

    def close(self) -> None:
        """End all processes. Questions still being asked end with their own limits."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.kill()
        self._threads.shutdown(wait=False)
        self._slow_thread.shutdown(wait=False)

    def _first(self, truths: Sequence[str], answer: str) -> MathVerdict:
        with self._lock:
            known = self._remembered.get((tuple(truths), answer))
        if known is not None:
            return known
        with self._places:
            try:
                worker = self._take()
            except OSError as error:
                return _not_started(error)
            try:
                return worker.ask(truths, answer, self.seconds)
            finally:
                self._put_back(worker)

    def _again(self, truths: Sequence[str], answer: str) -> MathVerdict:
        key = (tuple(truths), answer)
        with self._alone:
            if key in self._remembered:
                return self._remembered[key]
            self.asked_again += 1
            try:
                return self._once(truths, answer)
            except _CostError as cost:
                verdict = self._blame(truths, str(cost))
            if verdict.equal is False or verdict.task_fault:
                with self._lock:
                    self._remembered[key] = verdict
                    if len(self._remembered) > REMEMBERED:
                        self._remembered.popitem(last=False)
            return verdict

    def _blame(self, truths: Sequence[str], cost: str) -> MathVerdict:
        """The verdict on a question that could not be finished: the answer's doing, or the task's."""
        for probe in (truths[0], "1"):
            try:
                verdict = self._once(truths, probe)
            except _CostError as own:
                return MathVerdict(
                    None,
                    f"The verifier {own} on the task's own reference; give it a simpler truth.",
                    task_fault=True,
                )
            if verdict.equal is None:
                return verdict
        return MathVerdict(False, f"The answer is too expensive to compare: the verifier {cost}, twice.")

    def _once(self, truths: Sequence[str], answer: str) -> MathVerdict:
        """One question in a process of its own."""
        try:
            worker = _Worker()
        except OSError as error:
            return _not_started(error)
        try:
            return worker.ask(truths, answer, self.seconds * MORE_TIME)
        finally:
            self.killed += not worker.in_step
            worker.kill()

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


MISSING = "grading mathematics needs math-verify: pip install 'cleaner-rl[eval]'"


def available() -> bool:
    """Whether the verifier's package is installed."""
    return find_spec("math_verify") is not None


def _not_started(error: OSError) -> MathVerdict:
    return MathVerdict(None, f"The verifier could not be started ({type(error).__name__}).")


class _CostError(Exception):
    """A question exhausted a limit; the text says which."""


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
        """One question; a fault if the process is broken.

        Raises:
            _CostError: The question exhausted a limit.
        """
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
        line = self._line(seconds * WALL_FACTOR)
        if line is None:
            return self._lost(f"got less than {seconds:g} s of CPU time within {seconds * WALL_FACTOR:g} s")
        if not line:
            return self._died(seconds)
        said = json.loads(line)
        if "cost" in said:
            self.in_step = False  # whatever it still holds, the next question should not have to do with
            raise _CostError(said["cost"])
        if "fault" in said:
            return MathVerdict(None, said["fault"], task_fault=True)
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

    def _died(self, seconds: float) -> MathVerdict:
        self.in_step = False
        code = self._process.wait()
        if -code in OWN_DEATHS:
            raise _CostError(OWN_DEATHS[signal.Signals(-code)].format(seconds=seconds))
        return self._lost("died")

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

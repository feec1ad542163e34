"""What an operator sees: Prometheus metrics, and one JSON line per call.

The lines hold no code unless asked (`--log-code`), and never input, output or files: those belong to the callers.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterator
from typing import BinaryIO

import msgspec
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from cleaner_sandbox.node.config import NodeStatus
from cleaner_sandbox.protocol.wire import Outcome, encode
from cleaner_sandbox.service.fair_queue import GONE, Queue
from cleaner_sandbox.service.tenants import Tenant

logger = logging.getLogger(__name__)

LOG_SECONDS = 0.02
"""The most that a line waits for others."""
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class CallLine(msgspec.Struct, omit_defaults=True):
    """One call in the log."""

    time: float
    endpoint: str
    tenant: str
    id: str
    status: str
    waited_seconds: float
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    attempts: int = 1
    fault: str = ""
    session: str = ""
    code: str | None = None


class CallLog:
    """Writes lines a few at a time: at thousands of calls per second, a system call for each would be expensive.

    Limits: a server that is killed takes the last lines with it; a reader that stalls stalls the node. Without a
    reader, or room on its disk, there is no log any more until the server is started again.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lines: list[bytes] = []

    def add(self, line: bytes) -> None:
        """Write a line soon."""
        self._lines.append(line)
        if len(self._lines) == 1:
            asyncio.get_running_loop().call_later(LOG_SECONDS, self.flush)

    def flush(self) -> None:
        """Write what is there."""
        lines, self._lines = self._lines, []
        if not lines:
            return
        try:
            self._stream.write(b"\n".join([*lines, b""]))
            self._stream.flush()
        except OSError as error:
            logger.warning("the log of calls can't be written, and ends here: %s", error)
            self._end()

    def _end(self) -> None:
        # What the stream still holds goes there as well: it would be written, in vain, again and again until the exit.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)


class _NodeGauges(Collector):
    """Reads the node's state when somebody asks, so that it costs the calls nothing."""

    def __init__(self, status: Callable[[], NodeStatus], queue: Queue) -> None:
        self._status, self._queue = status, queue

    def collect(self) -> Iterator[Metric]:
        status = self._status()
        for name, text, value in (
            ("tier", "Isolation tier of the node.", int(status.tier)),
            ("slots", "Runs that the node does at the same time.", status.slots),
            ("running", "Calls that run now.", self._queue.running),
            ("waiting", "Calls that wait for a slot.", self._queue.waiting),
            ("waiting_limit", "Calls that may wait.", self._queue.calls.most),
            ("held_bytes", "Bytes of the requests being answered and of results not read yet.", self._queue.bytes),
            ("sessions", "Open sessions.", status.sessions),
            ("slot_deaths", "Slots that died since the start.", status.slot_deaths),
            ("zygote_deaths", "Zygotes that died since the start.", status.zygote_deaths),
        ):
            yield GaugeMetricFamily(f"cleaner_sandbox_{name}", text, value=value)


class Observer:
    """Hears of every call's end, once."""

    def __init__(self, status: Callable[[], NodeStatus], queue: Queue, log: CallLog, log_code: bool) -> None:
        self._log, self._log_code = log, log_code
        self._registry = CollectorRegistry()
        self._registry.register(_NodeGauges(status, queue))
        ProcessCollector(registry=self._registry)
        self._calls = Counter(
            "cleaner_sandbox_calls", "Calls by how they ended.", ("endpoint", "status"), registry=self._registry
        )
        self._refused = Counter(
            "cleaner_sandbox_refused_requests",
            "Requests turned away before any call of theirs began.",
            ("error",),
            registry=self._registry,
        )
        self._waited = Histogram(
            "cleaner_sandbox_wait_seconds", "From arrival to start.", buckets=BUCKETS, registry=self._registry
        )
        self._wall = Histogram(
            "cleaner_sandbox_run_seconds", "From start to end of a run.", buckets=BUCKETS, registry=self._registry
        )
        self._cpu = Counter(
            "cleaner_sandbox_cpu_seconds", "CPU time that callers' programs used.", registry=self._registry
        )

    def call_ended(
        self,
        endpoint: str,
        tenant: Tenant,
        call_id: str,
        code: str,
        outcome: Outcome | None,
        waited: float,
        session: str,
    ) -> None:
        """A call has ended; without an outcome if nobody was left to hear it."""
        status = GONE if outcome is None else outcome.status.value
        self._calls.labels(endpoint, status).inc()
        self._waited.observe(waited)
        line = CallLine(
            round(time.time(), 3), endpoint, tenant.name, call_id, status, round(waited, 6), session=session
        )
        if outcome is not None:
            self._wall.observe(outcome.wall_seconds)
            self._cpu.inc(outcome.cpu_seconds)
            line.cpu_seconds, line.wall_seconds = round(outcome.cpu_seconds, 6), round(outcome.wall_seconds, 6)
            line.attempts, line.fault = outcome.attempts, outcome.fault
        if self._log_code:
            line.code = code
        self._log.add(encode(line))

    def request_refused(self, error: str) -> None:
        """A request was turned away."""
        self._refused.labels(error).inc()

    def text(self) -> bytes:
        """All metrics in Prometheus' text form."""
        return generate_latest(self._registry)

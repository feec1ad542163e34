"""The connection to one node: calls go out in batches, results come back line by line.

Calls made in the same turn of the event loop share requests, so that 45,000 outstanding calls need no more connections
than `connections`; a lone call travels alone. A batch is a tuple that never changes, and a line is matched by its place
in that very tuple and by its id: a result can't reach another caller, however calls are retried (X16).
"""

from __future__ import annotations

import asyncio
import io
import socket
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

import aiohttp
import msgspec

from cleaner_sandbox.protocol.requests import OutputText
from cleaner_sandbox.protocol.wire import Outcome, Problem

MOST_CALLS: Final = 1_024
MOST_BYTES: Final = 8_388_608
"""Of one batch."""
LARGE: Final = 524_288
FIRST_REST, LONGEST_REST = 0.1, 5.0
"""Seconds that a node is left alone after it could not be reached; doubles each time."""
NOT_TAKEN: Final = (408, 429, 503)
"""Statuses of a node that has not begun what it was sent: the body came too slowly, it is full, it is shutting down."""

MOST_LINE: Final = 268_435_456
"""Bytes of one outcome: output, errors and files as large as any node gives, as JSON."""
MOST_PROBLEM: Final = 1_048_576
"""Bytes of an answer that says what is wrong."""
SHORTEST_RETRY, LONGEST_RETRY = 0.05, 60.0
"""Seconds that a node may ask to be left alone."""
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a decoder raises for an answer that is no JSON of ours: another type, no UTF-8, nested too deeply."""

_line_decoder = msgspec.json.Decoder(Outcome)
_output_decoder = msgspec.json.Decoder(OutputText)
_problem_decoder = msgspec.json.Decoder(Problem)


@dataclass(frozen=True, slots=True)
class Setback:
    """Why a call has no result yet."""

    message: str
    may_have_run: bool = False
    status: int = 0
    """Of HTTP, if the node answered."""


@dataclass(eq=False, slots=True)
class Call:
    """One call on its way."""

    id: str
    body: bytes
    answer: asyncio.Future[Outcome | Setback]
    alone: bool = False
    """Not to share a request: an earlier one that it shared was refused."""
    batch: Batch | None = None

    def settle(self, answer: Outcome | Setback) -> None:
        """Answer it, unless it is already answered or nobody waits any more."""
        if not self.answer.done():
            self.answer.set_result(answer)


@dataclass(eq=False, slots=True)
class Batch:
    """The calls of one request."""

    calls: tuple[Call, ...]
    task: asyncio.Task[None] | None = None

    def call_of(self, outcome: Outcome) -> Call:
        """The call that an outcome answers, by its place and its id."""
        index = outcome.index
        if index is None or not 0 <= index < len(self.calls) or self.calls[index].id != outcome.id:
            raise aiohttp.ClientPayloadError("the node mixed up its answers")
        return self.calls[index]

    @property
    def unanswered(self) -> list[Call]:
        """Those still waiting."""
        return [call for call in self.calls if not call.answer.done()]


@dataclass(eq=False)
class Link:
    """One node, as seen from here."""

    url: str
    http: aiohttp.ClientSession
    connections: int
    outstanding: int = 0
    resting_until: float = 0.0
    away: bool = False
    """Whether it did not answer when it was last asked."""
    _rest: float = FIRST_REST
    _open: int = 0
    _waiting: deque[Call] = field(default_factory=deque)
    _flushing: bool = False
    _batches: set[Batch] = field(default_factory=set)

    @property
    def resting(self) -> bool:
        """Whether it should be left alone for now."""
        return self.resting_until > time.monotonic()

    def rest(self, seconds: float | None = None) -> None:
        """Leave it alone: for so long, as it asked, or for longer each time."""
        if seconds is None:
            seconds, self._rest = self._rest, min(LONGEST_REST, 2 * self._rest)
            self.away = True
        else:
            self.away = False
        self.resting_until = max(self.resting_until, time.monotonic() + seconds)

    def is_back(self) -> None:
        """It took what it was sent: the next rest is a short one again."""
        self._rest, self.away = FIRST_REST, False

    async def ask(self, call: Call) -> Outcome | Setback:
        """Send a call and wait for what comes of it. Cancelling gives it up."""
        self.outstanding += 1
        self._waiting.append(call)
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)
        try:
            return await call.answer
        finally:
            self.outstanding -= 1
            batch = call.batch
            # The node stops a request's runs when the connection closes: worth it once nobody waits for any of them.
            if call.answer.cancelled() and batch is not None and batch.task is not None and not batch.unanswered:
                batch.task.cancel()

    def _flush(self) -> None:
        self._flushing = False
        while self._waiting and self._open < self.connections:
            share = -(-len(self._waiting) // (self.connections - self._open))
            if calls := self._take(min(MOST_CALLS, share)):
                batch = Batch(calls)
                self._open += 1
                self._batches.add(batch)
                batch.task = asyncio.get_running_loop().create_task(self._send(batch))

    def _take(self, most: int) -> tuple[Call, ...]:
        calls: list[Call] = []
        size = 0
        while self._waiting and len(calls) < most:
            call = self._waiting[0]
            if calls and (size + len(call.body) > MOST_BYTES or call.alone):
                break
            self._waiting.popleft()
            if not call.answer.done():
                calls.append(call)
                size += len(call.body)
            if call.alone:
                break
        return tuple(calls)

    async def _send(self, batch: Batch) -> None:
        for call in batch.calls:
            call.batch = batch
        setback = Setback("The node closed the connection before it had answered.", may_have_run=True)
        try:
            setback = await self._exchange(batch) or setback
        except (aiohttp.ClientConnectorError, aiohttp.ServerTimeoutError) as error:
            self.rest()
            setback = Setback(f"The node can't be reached: {error}")
        except (aiohttp.ClientError, OSError, *UNREADABLE) as error:
            self.rest()
            setback = Setback(f"The connection broke: {error!r}", may_have_run=True)
        finally:
            self._open -= 1
            self._batches.discard(batch)
            for call in batch.unanswered:
                call.settle(setback)
            self._flush()

    async def _exchange(self, batch: Batch) -> Setback | None:
        body = b'{"calls":[' + b",".join([call.body for call in batch.calls]) + b"]}"
        # No redirects: the programs are for this node.
        async with self.http.post(f"{self.url}/v1/runs", data=sendable(body), allow_redirects=False) as response:
            if response.status != 200:
                return await self._refused(response, batch)
            self.is_back()
            async for line in _lines(response.content):
                outcome = _line_decoder.decode(line)
                batch.call_of(outcome).settle(outcome)
        return None

    async def _refused(self, response: aiohttp.ClientResponse, batch: Batch) -> Setback:
        try:
            message = _problem_decoder.decode(await read(response, MOST_PROBLEM)).message
        except UNREADABLE:
            message = f"The node answered with status {response.status}."
        if response.status in NOT_TAKEN:
            self.rest(retry_seconds(response.headers.get("retry-after")))
        elif response.status >= 500:
            # The node failed, or a proxy lost it: nobody knows how far the calls came.
            self.rest()
            return Setback(message, may_have_run=True, status=response.status)
        elif response.status in (400, 413) and len(batch.calls) > 1:
            # One of them is at fault; sent alone, each gets its own answer.
            for call in batch.calls:
                call.alone = True
            return Setback(message, status=503)
        return Setback(message, status=response.status)

    async def close(self) -> None:
        """Give up all that is on its way."""
        tasks = [batch.task for batch in self._batches if batch.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def events(http: aiohttp.ClientSession, node: str, body: bytes) -> AsyncIterator[OutputText | Outcome]:
    """Run one call on a node, and yield the events of its answer; nothing if the node does not take it."""
    accept = {"accept": "text/event-stream"}
    async with http.post(f"{node}/v1/run", data=sendable(body), headers=accept, allow_redirects=False) as response:
        if response.status != 200 or response.content_type != accept["accept"]:
            return
        name = b""
        async for line in _lines(response.content):
            field_name, _, value = line.partition(b": ")
            if field_name == b"event":
                name = value
            elif field_name == b"data" and name == b"output":
                yield _output_decoder.decode(value)
            elif field_name == b"data" and name == b"outcome":
                yield _line_decoder.decode(value)


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """The lines of an answer, each as soon as it is whole. Raises `ClientPayloadError` for one that is too long."""
    parts: list[bytes] = []
    size = 0
    async for chunk in content.iter_any():
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            yield b"".join([*parts, line])
            parts, size = [], 0
        parts.append(rest)
        size += len(rest)
        if size > MOST_LINE:
            raise aiohttp.ClientPayloadError(f"the node's answer has a line of more than {MOST_LINE} bytes")


async def read(response: aiohttp.ClientResponse, most: int) -> bytes:
    """The body of an answer. Raises `ClientPayloadError` if it is larger than `most`."""
    parts: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        parts.append(chunk)
        size += len(chunk)
        if size > most:
            raise aiohttp.ClientPayloadError(f"the node's answer is larger than {most} bytes")
    return b"".join(parts)


def sendable(body: bytes) -> bytes | io.BytesIO:
    """A body for one request. A file is sent piece by piece: to write a large one in one go holds up the event loop."""
    return body if len(body) < LARGE else io.BytesIO(body)


def retry_seconds(retry_after: str | None) -> float:
    """What a Retry-After header asks for, within reason."""
    try:
        return min(LONGEST_RETRY, max(SHORTEST_RETRY, float(retry_after or 1)))
    except ValueError:
        return 1.0


def probing_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Make a socket whose kernel notices a machine that vanishes without closing its connections."""
    made = socket.socket(*address[:3])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, seconds in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, option):  # some systems lack the first
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), seconds)
    return made

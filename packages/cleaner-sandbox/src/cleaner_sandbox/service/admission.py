"""Who may hold a connection, for how long, and how much of a request may arrive before anybody knows who sends it.

All of this is decided before a token is looked at, by what a connection does:

- `Connection` bounds the bytes of a request that are not its body, the time in which its head and an unread body
  arrive, the requests that wait on one connection, and the time that a caller reads nothing.
- `Admission` bounds the connections, all together and per peer. One that has not shown a token yet makes room first,
  then an idle one of a tenant that has more than half of all.

Limits: peers are told apart by address (IPv6: by /64), so everybody behind one proxy is one peer.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import time
from collections import Counter, defaultdict
from typing import Any, Final

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from cleaner_sandbox.protocol.wire import Problem, encode
from cleaner_sandbox.service import http
from cleaner_sandbox.service.http import JSON, Receive, Scope, Send

MOST_FRAMING: Final = 32_768
"""Bytes of a request beside its body: the request line, headers, trailers, and what separates chunks. An eighth of the
body is granted on top, so that chunks of 64 bytes and more never add up to it."""
STEP: Final = 16_384
"""Bytes that the parser gets before they are counted."""
MOST_PIPELINED: Final = 8
"""Requests that wait on one connection for the answer to an earlier one."""
HEAD_SECONDS = 10.0
"""From the accept, or from the first byte of a later request, to the end of the headers."""
READ_SECONDS = 300.0
"""A caller that takes nothing of its answer for so long has left."""
ANSWER_SECONDS = 10.0
"""In which the check at the start is answered, on a machine that is busy."""
NEW_SECONDS: Final = 1.0
"""A connection that is younger makes no room for others: its request may be on its way."""


class Admission:
    """The connections of a node; one without a token has no share per peer, because all its peers are this machine."""

    def __init__(self, most: int, tokens: bool) -> None:
        self._most_refused = most // 8  # which wait to hear so
        self._most = most - self._most_refused
        self._most_of_peer = self._most // 2 if tokens else self._most
        self._all: set[Connection] = set()
        self._of_peer: Counter[str] = Counter()
        self._strangers: dict[Connection, float] = {}
        """Without a token so far, and since when they are there, oldest first."""
        self._strangers_of: dict[str, dict[Connection, None]] = {}
        self._known_of: defaultdict[str, dict[Connection, None]] = defaultdict(dict)
        """Of each tenant, the oldest first."""
        self._refused: set[Connection] = set()

    def enter(self, connection: Connection) -> bool:
        """Take a connection, in place of an older one if need be, or say that its requests are to be refused."""
        peer = connection.peer
        of_peer = self._of_peer[peer] >= self._most_of_peer
        if of_peer or len(self._all) >= self._most:
            oldest = next(iter(self._strangers_of.get(peer, ()) if of_peer else self._strangers), None)
            if oldest is not None and time.monotonic() - self._strangers[oldest] < NEW_SECONDS:
                oldest = None
            if oldest is None and not of_peer:
                oldest = self._idle_of_most()
            if oldest is None:
                self._refused.add(connection)
                if len(self._refused) > self._most_refused:
                    connection.abort()
                return False
            self.leave(oldest)
            oldest.abort()
        self._all.add(connection)
        self._of_peer[peer] += 1
        self._strangers[connection] = time.monotonic()
        self._strangers_of.setdefault(peer, {})[connection] = None
        return True

    def know(self, connection: Connection, tenant: str) -> None:
        """Note whose valid token a request of it had."""
        if connection in self._strangers:
            self._forget_stranger(connection)
            connection.tenant = tenant
            self._known_of[tenant][connection] = None

    def _forget_stranger(self, connection: Connection) -> None:
        if self._strangers.pop(connection, None) is not None:
            of_peer = self._strangers_of[connection.peer]
            del of_peer[connection]
            if not of_peer:
                del self._strangers_of[connection.peer]

    def _idle_of_most(self) -> Connection | None:
        """The oldest connection without a request, of a tenant that has more than half of all connections."""
        most = max(self._known_of.values(), key=len, default={})
        return next((each for each in most if each.idle), None) if len(most) > self._most // 2 else None

    def leave(self, connection: Connection) -> None:
        """Forget a connection; twice is fine."""
        self._forget_stranger(connection)
        self._known_of[connection.tenant].pop(connection, None)
        self._refused.discard(connection)
        if connection in self._all:
            self._all.remove(connection)
            self._of_peer[connection.peer] -= 1
            if not self._of_peer[connection.peer]:
                del self._of_peer[connection.peer]


class Connection(HttpToolsProtocol):
    """One connection, with bounds on what it may hold and for how long."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.peer = self.tenant = ""
        self._admission: Admission = config.app.admission  # type: ignore[union-attr]  # it is our `App`
        self._framing = 0
        self._arriving = self._in_body = False
        self._answering: RequestResponseCycle | None = None
        """The request that is being answered; `cycle` is the last one that came."""
        self._time_limit: float | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begin."""
        super().connection_made(transport)
        self.peer = _peer(self.client)
        self._limit(HEAD_SECONDS)
        if not self._admission.enter(self):
            self.app = _refuse_all

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._admission.leave(self)
        self._limit(None)
        self._tell_gone()
        self.resume_writing()
        super().connection_lost(exc)

    @property
    def idle(self) -> bool:
        """Whether no request arrives or waits for an answer."""
        return not self._arriving and (self.cycle is None or self.cycle.response_complete)

    def abort(self) -> None:
        """Close it without an answer."""
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Read some bytes, count those that are no body, and close where they are too many."""
        for start in range(0, len(data), STEP):
            step = data if len(data) <= STEP else data[start : start + STEP]
            self._framing += len(step)
            super().data_received(step)
            if self.transport.is_closing():
                self._tell_gone()
                self._limit(http.BODY_SECONDS)
                return
            if self._framing > MOST_FRAMING:
                self._refuse(431, "headers_too_large", f"A request may have {MOST_FRAMING} bytes beside its body.")
                return
        self._limit_arrival(HEAD_SECONDS)

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._arriving, self._in_body = True, False
        self.scope["state"]["known"] = self._know

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header of it is there. What comes after the body is none: a proxy that looks at headers doesn't see it."""
        if not self._in_body:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Its head is there. Raises, and so ends the connection, if too many requests wait for an answer."""
        if len(self.pipeline) >= MOST_PIPELINED:
            raise ValueError(f"more than {MOST_PIPELINED} requests wait on one connection")
        self._in_body = True
        super().on_headers_complete()
        self._answering = self._answering or self.cycle

    def on_body(self, body: bytes) -> None:
        """Some of its body is there."""
        self._framing = max(0, self._framing - len(body) - len(body) // 8)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """All of it is there."""
        self._arriving = self._in_body = False
        self._framing = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """It is answered; the rest of it may still be on its way."""
        self._answering = self.pipeline[-1][0] if self.pipeline else None
        super().on_response_complete()
        if self.transport.is_closing():
            self._limit(http.BODY_SECONDS)  # to send what is left of the answer
        else:
            self._limit_arrival(HEAD_SECONDS if self._arriving else None)

    def pause_writing(self) -> None:
        """The caller doesn't read."""
        super().pause_writing()
        self._reading = self.loop.call_later(READ_SECONDS, self._check_reading, self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """It reads again."""
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        super().resume_writing()

    def _check_reading(self, left: int) -> None:
        now = self.transport.get_write_buffer_size()
        if now >= left:
            self.abort()
        else:
            self._reading = self.loop.call_later(READ_SECONDS, self._check_reading, now)

    def _know(self, tenant: str) -> None:
        self._admission.know(self, tenant)

    def _limit_arrival(self, of_head: float | None) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._limit(None)  # whoever answers it has its own limits, for the body too
        else:
            self._limit(http.BODY_SECONDS if self._in_body else of_head)

    def _limit(self, seconds: float | None) -> None:
        """Close the connection in so many seconds, unless that is under way already; None: not at all."""
        if seconds == self._time_limit:
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._time_limit = seconds
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self._too_slow)

    def _too_slow(self) -> None:
        if self._in_body or self.transport.is_closing():  # then it has its answer
            self.abort()
        else:
            self._refuse(408, "slow_request", "The request's headers did not arrive in time.")

    def _refuse(self, status: int, error: str, message: str) -> None:
        body = encode(Problem(error, message))
        head = b"content-type: %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % (JSON, len(body))
        self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()
        self._tell_gone()
        self._limit(http.BODY_SECONDS)

    def _tell_gone(self) -> None:
        """Tell whoever answers a request that nobody will read it: the server tells only the last one that came."""
        if self._answering is not None:
            self._answering.disconnected = True
            self._answering.message_event.set()


async def unheld(config: Config) -> str | None:
    """Return which bound a connection does not keep with the uvicorn that is installed; None if it keeps all.

    `Connection` overrides methods that uvicorn doesn't promise to keep. So a first connection, which nobody else can
    reach, sends too much at the start of every node.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        loop = asyncio.get_running_loop()
        _, connection = await loop.connect_accepted_socket(lambda: Connection(config, ServerState(), {}), theirs)
        try:
            if connection._deadline is None:
                return "the time in which a request's head must arrive"
            ours.setblocking(False)
            await loop.sock_sendall(ours, b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * MOST_FRAMING)
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = await loop.sock_recv(ours, 4_096)
        except (OSError, TimeoutError, AttributeError):
            answer = b""
        finally:
            connection.abort()
    return None if answer.startswith(b"HTTP/1.1 431 ") else "the bytes that a request may have beside its body"


async def _refuse_all(_: Scope, receive: Receive, send: Send) -> None:
    """Answer on a connection for which there is no room. The body is read first, or its sender would see no answer."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(http.BODY_SECONDS):
            while (await receive()).get("more_body"):
                pass
    body = encode(Problem("too_many_connections", "The node holds as many connections as it may; try again."))
    head = [
        (b"content-type", JSON),
        (b"content-length", str(len(body)).encode()),
        (b"retry-after", b"1"),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 503, "headers": head})
    await send({"type": "http.response.body", "body": body})


def _peer(client: tuple[str, int] | None) -> str:
    if client is None:
        return ""
    address = ipaddress.ip_address(client[0].partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, 64), strict=False))

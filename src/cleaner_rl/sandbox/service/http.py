"""One HTTP exchange over raw ASGI: read a bounded body, answer once or line by line, notice that the caller left.

Raw ASGI because a call's budget is a few milliseconds: a routing and validation framework costs as much as running the
program does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, TypeVar

import msgspec

from cleaner_rl.sandbox.protocol.wire import Problem, encode

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Header = tuple[bytes, bytes]
T = TypeVar("T")

BODY_SECONDS = 60.0
"""A body that takes longer to arrive is given up: a slow sender must not hold memory for ever."""
JSON = b"application/json"
LINES = b"application/x-ndjson"


class HttpError(Exception):
    """An answer that isn't a result."""

    def __init__(self, status: int, error: str, message: str, headers: tuple[Header, ...] = ()) -> None:
        super().__init__(message)
        self.status, self.error, self.message, self.headers = status, error, message, headers


class GoneError(Exception):
    """The caller closed the connection."""


class Arrivals:
    """Bytes of bodies that are still arriving, together: many large ones at once must not fill the memory."""

    def __init__(self, most_of_one: int, most: int) -> None:
        self.most_of_one, self.most, self.bytes = most_of_one, most, 0


class Exchange:
    """A request and the answer to it."""

    __slots__ = ("_arrivals", "_receive", "_send", "answered", "method", "path", "scope", "size", "tail")

    def __init__(self, scope: Scope, receive: Receive, send: Send, arrivals: Arrivals) -> None:
        self.scope, self._receive, self._send, self._arrivals = scope, receive, send, arrivals
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.tail: tuple[str, ...] = ()
        """The variable parts of the path."""
        self.size = 0
        """Bytes of the body, once it is read: about what is held until the answer."""
        self.answered = False

    def header(self, name: bytes) -> bytes | None:
        """A header's value; names are lower case."""
        for key, value in self.scope["headers"]:
            if key == name:
                return value  # type: ignore[no-any-return]  # ASGI's scope is untyped
        return None

    async def body(self) -> bytes:
        """The whole body. Raises `HttpError` when it is larger than the service takes, or than it can take now."""
        arrivals = self._arrivals
        parts: list[bytes] = []
        try:
            async with asyncio.timeout(BODY_SECONDS):
                message = await self._receive()
                parts.append(self._checked(message))
                size = len(parts[0])
                while message.get("more_body"):
                    message = await self._receive()
                    part = self._checked(message)
                    size += len(part)
                    # Too much is read to its end all the same, and dropped: a caller that is still sending when the
                    # connection closes never sees the answer.
                    if parts and size <= arrivals.most_of_one and arrivals.bytes + len(part) <= arrivals.most:
                        arrivals.bytes += len(part)
                        parts.append(part)
                    else:
                        arrivals.bytes -= sum(map(len, parts[1:]))
                        parts.clear()
        except TimeoutError:
            why = "The request's body did not arrive in time."
            raise HttpError(408, "slow_request", why, ((b"connection", b"close"),)) from None
        finally:
            arrivals.bytes -= sum(map(len, parts[1:]))
        if size > arrivals.most_of_one:
            raise HttpError(413, "too_large", f"The request's body is larger than {arrivals.most_of_one} bytes.")
        if not parts:
            raise HttpError(429, "queue_full", "Too much is arriving at once.", ((b"retry-after", b"1"),))
        self.size = size
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _checked(self, message: Message) -> bytes:
        if message["type"] == "http.disconnect":
            raise GoneError
        return message.get("body", b"")  # type: ignore[no-any-return]

    async def json(self, decoder: msgspec.json.Decoder[T]) -> T:
        """The body, decoded and checked."""
        body = await self.body()
        try:
            return decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise HttpError(400, "invalid_request", f"{error}.") from None

    async def gone(self) -> None:
        """Wait until the caller has closed the connection; call it once the body is read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def reply(
        self, body: bytes, status: int = 200, content_type: bytes = JSON, headers: Iterable[Header] = ()
    ) -> None:
        """Answer."""
        head = [(b"content-type", content_type), (b"content-length", str(len(body)).encode()), *headers]
        self.answered = True
        await self._send({"type": "http.response.start", "status": status, "headers": head})
        await self._send({"type": "http.response.body", "body": body})

    async def refuse(self, error: HttpError) -> None:
        """Answer with a problem."""
        await self.reply(encode(Problem(error.error, error.message)), error.status, headers=error.headers)

    async def lines(self, data: bytes, last: bool) -> None:
        """Send some lines, and end the answer with the last; waits while the caller doesn't read.

        The head goes out with the first lines: one system call less for a batch of one.
        """
        if not self.answered:
            self.answered = True
            await self._send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", LINES)]})
        await self._send({"type": "http.response.body", "body": data, "more_body": not last})

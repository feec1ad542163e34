"""One HTTP exchange over raw ASGI: read a bounded body, answer at once or in parts, notice that the caller left.

Raw ASGI because a call's budget is a few milliseconds: a routing and validation framework costs as much as running the
program does.

One event loop serves all callers, so whatever grows with a request is bounded before it costs anything (bytes and
strings of a JSON body), or is done in steps between which the loop serves others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final, TypeVar

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
MOST_JSON: Final = 33_554_432
"""Bytes of a JSON body: it is decoded in one go, and nobody is served meanwhile. Files that are put may be larger."""
MOST_STRINGS: Final = 131_072
"""Strings of a JSON body, names of fields included: each becomes an object, and no call does without one."""
STEP: Final = 196_608
"""Bytes that are looked at, encoded or sent before the event loop may serve others; base64 wants a multiple of 3."""
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

    async def body(self, most: int | None = None) -> bytes:
        """The whole body. Raises `HttpError` when it is larger than `most`, or than there is room for."""
        arrivals = self._arrivals
        most = arrivals.most_of_one if most is None else min(most, arrivals.most_of_one)
        held, kept = bytearray(), True
        try:
            async with asyncio.timeout(BODY_SECONDS):
                message = await self._receive()
                first = self._checked(message)
                size = len(first)
                while message.get("more_body"):
                    message = await self._receive()
                    part = self._checked(message)
                    size += len(part)
                    # Too much is read to its end all the same, and dropped: a caller that is still sending when the
                    # connection closes never sees the answer.
                    kept = kept and size <= most and arrivals.bytes + len(part) <= arrivals.most
                    if kept:
                        arrivals.bytes += len(part)
                        held += part
                    else:
                        arrivals.bytes -= len(held)
                        held.clear()
        except TimeoutError:
            why = "The request's body did not arrive in time."
            raise HttpError(408, "slow_request", why, ((b"connection", b"close"),)) from None
        finally:
            arrivals.bytes -= len(held)
        if size > most:
            raise HttpError(413, "too_large", f"The request's body is larger than {most} bytes.")
        if not kept:
            raise HttpError(429, "queue_full", "Too much is arriving at once.", ((b"retry-after", b"1"),))
        self.size = size
        return first + held if held else first

    def _checked(self, message: Message) -> bytes:
        if message["type"] == "http.disconnect":
            raise GoneError
        return message.get("body", b"")  # type: ignore[no-any-return]

    async def json(self, decoder: msgspec.json.Decoder[T]) -> T:
        """The body, decoded and checked."""
        body = await self.body(MOST_JSON)
        strings, wide = await _strings_of(body)
        if strings > MOST_STRINGS:
            why = f"The request's body holds more than {MOST_STRINGS} strings (names of fields included); send several."
            raise HttpError(413, "too_large", why)
        if wide:
            self.size *= WIDEST
        try:
            return decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise HttpError(400, "invalid_request", f"{error}.") from None
        except RecursionError:
            raise HttpError(400, "invalid_request", "The request's body is nested too deeply.") from None

    async def gone(self) -> None:
        """Wait until the caller has closed the connection; call it once the body is read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def reply(
        self, body: bytes, status: int = 200, content_type: bytes = JSON, headers: Iterable[Header] = ()
    ) -> None:
        """Answer; returns when the caller has read all but the last few hundred kilobytes."""
        head = [(b"content-type", content_type), (b"content-length", str(len(body)).encode()), *headers]
        self.answered = True
        await self._send({"type": "http.response.start", "status": status, "headers": head})
        await self._send_body(body, last=True)

    async def refuse(self, error: HttpError) -> None:
        """Answer with a problem."""
        await self.reply(encode(Problem(error.error, error.message)), error.status, headers=error.headers)

    async def part(self, data: bytes, last: bool, content_type: bytes = LINES) -> None:
        """Send a part of the answer, and end the answer with the last; waits while the caller doesn't read.

        The head goes out with the first part: one system call less for a batch of one.
        """
        if not self.answered:
            self.answered = True
            head = [(b"content-type", content_type)]
            await self._send({"type": "http.response.start", "status": 200, "headers": head})
        await self._send_body(data, last)

    async def _send_body(self, data: bytes, last: bool) -> None:
        # In steps: the server waits for a slow reader before it takes the next one. What it has taken nobody counts.
        for start in range(0, max(1, len(data)), STEP):
            more = not last or start + STEP < len(data)
            step = data if len(data) <= STEP else data[start : start + STEP]
            await self._send({"type": "http.response.body", "body": step, "more_body": more})


WIDEST: Final = 4
"""Bytes per character of a text that holds a rare one: a megabyte with one emoji takes four."""


async def _strings_of(body: bytes) -> tuple[int, bool]:
    """How many strings a JSON body holds, or at least half of them, and whether they may take more memory than it."""
    quotes, wide = 0, False
    for start in range(0, len(body), STEP):
        if start:
            await asyncio.sleep(0)
        end = start + STEP
        # The quote that opens a string never follows a backslash; of those that close one, few do.
        quotes += body.count(b'"', start, end) - body.count(b'\\"', start, end)
        wide = wide or body.find(b"\\u", start, end) >= 0
    return quotes // 2, wide or not body.isascii()


async def encode_in_steps(value: msgspec.Struct) -> bytes:
    """A value as JSON. Its long texts and files are encoded step by step, and replaced in it by what they became."""
    return encode(await _with_long_ones_encoded(value))


async def _with_long_ones_encoded(value: object) -> object:
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            setattr(value, name, await _with_long_ones_encoded(getattr(value, name)))
        return value
    if isinstance(value, list):
        return [await _with_long_ones_encoded(item) for item in value]
    if isinstance(value, dict):
        return {name: await _with_long_ones_encoded(item) for name, item in value.items()}
    if not isinstance(value, str | bytes) or len(value) <= STEP:
        return value
    parts = [b'"']
    for start in range(0, len(value), STEP):
        parts.append(encode(value[start : start + STEP])[1:-1])
        await asyncio.sleep(0)
    parts.append(b'"')
    joined = msgspec.Raw(b"".join(parts))
    await asyncio.sleep(0)
    return joined

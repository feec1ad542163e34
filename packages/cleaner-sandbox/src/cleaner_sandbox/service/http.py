"""One HTTP exchange over raw ASGI: read a bounded body, answer at once or in parts, notice that the caller left.

Raw ASGI because a call's budget is a few milliseconds: a routing and validation framework costs as much as running the
program does.

One event loop serves all callers, so whatever grows with a request is bounded before it costs anything (bytes and
strings of a JSON body), or is done in steps between which the loop serves others.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from cleaner_sandbox.node.shares import Shares
from cleaner_sandbox.protocol.wire import Problem, encode

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Header = tuple[bytes, bytes]
T = TypeVar("T")

BODY_SECONDS = 60.0
"""A body that takes longer to arrive is given up: a slow sender must not hold memory for ever."""
MOST_JSON: Final = 16_777_216
"""Bytes of a JSON body. It is decoded in one go, and nobody is served meanwhile: this and the next four bounds keep
that below about 0.1 s, which is for a number of 16 million digits. Files that are put may be larger."""
MOST_WIDE_JSON: Final = 8_388_608
"""Bytes of a JSON body that isn't ASCII: these are decoded at a quarter of the speed."""
MOST_ESCAPES: Final = 4_194_304
"""Escapes such as the one of a line break in the strings of a JSON body: each is decoded by itself."""
MOST_COMMAS: Final = 2_097_152
"""Commas of a JSON body: what they separate is decoded one by one, also in a field that nobody asked for."""
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

    def __init__(self, most_of_one: int, most: int, tenants: int) -> None:
        self.most_of_one, self.bytes = most_of_one, Shares(most, tenants)


class Exchange:
    """A request and the answer to it."""

    __slots__ = ("_arrivals", "_receive", "_send", "answered", "method", "path", "scope", "size", "tail", "tenant")

    def __init__(self, scope: Scope, receive: Receive, send: Send, arrivals: Arrivals) -> None:
        self.scope, self._receive, self._send, self._arrivals = scope, receive, send, arrivals
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.tail: tuple[str, ...] = ()
        """The variable parts of the path."""
        self.size = 0
        """Bytes of the body, once it is read: about what is held until the answer."""
        self.answered = False
        self.tenant = ""
        """Name of the tenant whose token came with it."""

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
                    kept = kept and size <= most and arrivals.bytes.has_room(self.tenant, len(part))
                    if kept:
                        arrivals.bytes.take(self.tenant, len(part))
                        held += part
                    else:
                        arrivals.bytes.take(self.tenant, -len(held))
                        held.clear()
        except TimeoutError:
            why = "The request's body did not arrive in time."
            raise HttpError(408, "slow_request", why, ((b"connection", b"close"),)) from None
        finally:
            arrivals.bytes.take(self.tenant, -len(held))
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
        weight = await _weighed(body)
        problem = None
        if weight.strings > MOST_STRINGS:
            problem = f"more than {MOST_STRINGS} strings (names of fields included)"
        elif weight.escapes > MOST_ESCAPES:
            problem = f"more than {MOST_ESCAPES} backslashes"
        elif weight.commas > MOST_COMMAS:
            problem = f"more than {MOST_COMMAS} commas"
        elif weight.wide and len(body) > MOST_WIDE_JSON:
            problem = f"characters beyond ASCII and more than {MOST_WIDE_JSON} bytes"
        if problem is not None:
            raise HttpError(413, "too_large", f"The request's body holds {problem}; send several.")
        if weight.wide:
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
        self, *parts: bytes, status: int = 200, content_type: bytes = JSON, headers: Iterable[Header] = ()
    ) -> None:
        """Answer with the parts of a body; returns when the caller has read all but the last few hundred kilobytes."""
        length = sum(map(len, parts))
        head = [(b"content-type", content_type), (b"content-length", str(length).encode()), *headers]
        self.answered = True
        await self._send({"type": "http.response.start", "status": status, "headers": head})
        await self._send_body(parts, last=True)

    async def refuse(self, error: HttpError) -> None:
        """Answer with a problem."""
        await self.reply(encode(Problem(error.error, error.message)), status=error.status, headers=error.headers)

    async def part(self, data: Sequence[bytes], last: bool, content_type: bytes = LINES) -> None:
        """Send some of the answer, and end the answer with the last of it; waits while the caller doesn't read.

        The head goes out with the first of it: one system call less for a batch of one.
        """
        if not self.answered:
            self.answered = True
            head = [(b"content-type", content_type)]
            await self._send({"type": "http.response.start", "status": 200, "headers": head})
        await self._send_body(data, last)

    async def _send_body(self, parts: Sequence[bytes], last: bool) -> None:
        # In steps: the server waits for a slow reader before it takes the next one. What it has taken nobody counts,
        # nor would anybody count a copy of all parts.
        before: bytes | None = None
        for step in _steps(parts):
            if before is not None:
                await self._send({"type": "http.response.body", "body": before, "more_body": True})
            before = step
        await self._send({"type": "http.response.body", "body": before or b"", "more_body": not last})


def _steps(parts: Sequence[bytes]) -> Iterator[bytes]:
    """The same bytes in steps of a good size: short parts joined, long ones cut."""
    short: list[bytes] = []
    size = 0
    for part in parts:
        if short and size + len(part) > STEP:
            yield b"".join(short)
            short, size = [], 0
        if len(part) > STEP:
            for start in range(0, len(part), STEP):
                yield part[start : start + STEP]
        else:
            short.append(part)
            size += len(part)
    if short:
        yield short[0] if len(short) == 1 else b"".join(short)


WIDEST: Final = 4
"""Bytes per character of a text that holds a rare one: a megabyte with one emoji takes four."""


_OTHERS: Final = bytes(byte for byte in range(256) if byte not in b'"\\,')


class Weight(NamedTuple):
    """What decoding a JSON body takes."""

    strings: int
    """At least half of its strings."""
    escapes: int
    commas: int
    wide: bool
    """Whether its strings may take more memory than it does."""


async def _weighed(body: bytes) -> Weight:
    """What is in a body, counted no further than to what is too much."""
    quotes, escapes, commas, wide = 0, 0, 0, False
    for start in range(0, len(body), STEP):
        if start:
            await asyncio.sleep(0)
        step = body[start : start + STEP]
        # The quote that opens a string never follows a backslash, not even when all other characters are left out; of
        # those that close one, some do.
        marks = step.translate(None, _OTHERS)
        quotes += marks.count(b'"') - marks.count(b'\\"')
        escapes += marks.count(b"\\")
        commas += marks.count(b",")
        wide = wide or (b"\\" in marks and body.find(b"\\u", start, start + STEP + 1) >= 0)
        if quotes // 2 > MOST_STRINGS or escapes > MOST_ESCAPES or commas > MOST_COMMAS:
            break
    return Weight(quotes // 2, escapes, commas, wide or not body.isascii())


async def encode_in_steps(value: msgspec.Struct) -> list[bytes]:
    """A value as JSON, in parts that are not joined. Its long texts and files are encoded step by step, and dropped."""
    # In place of each there is a word that nothing in the value can hold, since nobody can guess it.
    mark = secrets.token_hex(16)
    long_ones: list[list[bytes]] = []
    between = encode(await _with_marks(value, mark, long_ones)).split(b'"%b"' % mark.encode())
    parts = [between[0]]
    for long_one, after in zip(long_ones, between[1:], strict=True):
        parts += [*long_one, after]
    return parts


async def _with_marks(value: object, mark: str, long_ones: list[list[bytes]]) -> object:
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            setattr(value, name, await _with_marks(getattr(value, name), mark, long_ones))
        return value
    if isinstance(value, list):
        return [await _with_marks(item, mark, long_ones) for item in value]
    if isinstance(value, dict):
        return {name: await _with_marks(item, mark, long_ones) for name, item in value.items()}
    if not isinstance(value, str | bytes) or len(value) <= STEP:
        return value
    parts = [b'"']
    for start in range(0, len(value), STEP):
        parts.append(encode(value[start : start + STEP])[1:-1])
        await asyncio.sleep(0)
    parts.append(b'"')
    long_ones.append(parts)
    return mark

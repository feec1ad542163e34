"""Answers as server-sent events: what a program prints while it runs, then its outcome.

The events `output` are a preview. The last event, `outcome`, holds what the answer would be without a preview, and is
made in the same way. A caller that reads slowly gets its events later and larger; nothing is kept for it, because they
are read from the files that the program prints into.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, TypeVar

from cleaner_sandbox.node.preview import OutputPreview
from cleaner_sandbox.protocol.wire import Problem, encode
from cleaner_sandbox.service.fair_queue import PendingRequest
from cleaner_sandbox.service.http import Exchange, HttpError

T = TypeVar("T")

EVENTS: Final = b"text/event-stream"
LOOK_SECONDS: Final = 0.1
"""Between two looks at what a program has printed."""
QUIET_SECONDS: Final = 15.0
"""After which a comment is sent, so that no proxy takes the connection for dead."""


def wanted(exchange: Exchange) -> bool:
    """Whether the caller asks for events."""
    return EVENTS in (exchange.header(b"accept") or b"")


async def ended(exchange: Exchange, pending: PendingRequest[T], preview: OutputPreview) -> T:
    """Send what the request's one program prints, until it has ended; return its answer. Raises `GoneError`."""
    loop = asyncio.get_running_loop()
    coming = asyncio.ensure_future(pending.next())
    sent = loop.time()
    try:
        while not (await asyncio.wait((coming,), timeout=LOOK_SECONDS))[0]:
            parts = [part for text in preview.read() for part in _event(b"output", [encode(text)])]
            if parts or loop.time() - sent > QUIET_SECONDS:
                await exchange.part(parts or [b":\n\n"], last=False, content_type=EVENTS)
                sent = loop.time()
        ((_, answer),) = coming.result()
        return answer
    finally:
        coming.cancel()


async def end(exchange: Exchange, parts: Sequence[bytes], error: HttpError | None = None) -> None:
    """Send the last event: the outcome, as JSON in parts, or a problem. Raises it instead if nothing was sent yet."""
    if error is None:
        last = _event(b"outcome", parts)
    elif exchange.answered:
        last = _event(b"problem", [encode(Problem(error.error, error.message))])
    else:
        raise error
    await exchange.part(last, last=True, content_type=EVENTS)


def _event(name: bytes, data: Sequence[bytes]) -> list[bytes]:
    return [b"event: %b\ndata: " % name, *data, b"\n\n"]

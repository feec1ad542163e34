"""Our own endpoints for programs that stand alone: `POST /v1/run` and `POST /v1/runs`.

A batch is answered line by line (NDJSON), each result as soon as it is there, with its id and its place in the batch.
That is how a caller has thousands of calls outstanding over a handful of connections. A single call can be answered as
server-sent events, with what its program prints (`events`).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from cleaner_sandbox.node.preview import OutputPreview
from cleaner_sandbox.protocol.wire import EXPIRED, BatchCall, Outcome, RunCall, encode
from cleaner_sandbox.service import events
from cleaner_sandbox.service.app import App, Route
from cleaner_sandbox.service.fair_queue import PendingRequest
from cleaner_sandbox.service.http import STEP, Exchange, HttpError, encode_in_steps
from cleaner_sandbox.service.tenants import Tenant

_run_decoder = msgspec.json.Decoder(RunCall)
_batch_decoder = msgspec.json.Decoder(BatchCall)


def add_runs(app: App) -> None:
    """Serve them."""
    runs = Runs(app)
    app.add(
        Route("POST", "/v1/run", runs.run, "Run one program.", RunCall, Outcome),
        Route("POST", "/v1/runs", runs.batch, "Run many; results in order of arrival.", BatchCall, Outcome, lines=True),
    )


class Answer(NamedTuple):
    """What a call's caller gets, as the bytes that are sent: text that is held takes up to four times as much."""

    outcome: Outcome
    """For the log; without what the program printed and left."""
    parts: Sequence[bytes]

    @classmethod
    def of(cls, outcome: Outcome, parts: Sequence[bytes]) -> Answer:
        """The answer to a call; takes the outcome over."""
        outcome.output = outcome.stderr = ""
        outcome.files, outcome.exception, outcome.displays = {}, None, []
        return cls(outcome, parts)

    @property
    def size(self) -> int:
        """About how many bytes it holds on to."""
        return 512 + sum(map(len, self.parts))


class Runs:
    """Runs of stand-alone programs; the other dialects run theirs through `enqueue` as well."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def run(self, exchange: Exchange, tenant: Tenant) -> None:
        """Answer one call."""
        call = await exchange.json(_run_decoder)
        if not events.wanted(exchange):
            await self.answer_one(exchange, tenant, call, lambda _, outcome: outcome, call.within)
            return
        preview = OutputPreview()
        with self.enqueue(
            exchange, tenant, 1, lambda _: call, lambda _, outcome: outcome, call.within, preview=preview
        ) as pending:
            answer = await events.ended(exchange, pending, preview)
            await events.end(exchange, answer.parts)

    async def batch(self, exchange: Exchange, tenant: Tenant) -> None:
        """Answer many calls as they end."""
        batch = await exchange.json(_batch_decoder)
        calls = batch.calls
        if not calls:
            raise HttpError(400, "invalid_request", "The batch holds no calls.")
        within = calls[0].within if batch.within is None and len(calls) == 1 else batch.within

        def numbered(index: int, outcome: Outcome) -> Outcome:
            outcome.index = index
            return outcome

        with self.enqueue(exchange, tenant, len(calls), calls.__getitem__, numbered, within) as pending:
            while not pending.complete:
                lines = [part for _, answer in await pending.next() for part in (*answer.parts, b"\n")]
                await exchange.part(lines, last=pending.complete)

    async def answer_one(
        self,
        exchange: Exchange,
        tenant: Tenant,
        call: RunCall,
        shape: Callable[[int, Outcome], msgspec.Struct],
        within: float | None = None,
        start_within: float | None = None,
    ) -> None:
        """Run one call and answer the request with its outcome, as `shape` makes it. Raises `HttpError`."""
        with self.enqueue(exchange, tenant, 1, lambda _: call, shape, within, start_within) as pending:
            ((_, answer),) = await pending.next()
            await exchange.reply(*answer.parts)

    def enqueue(
        self,
        exchange: Exchange,
        tenant: Tenant,
        count: int,
        call_of: Callable[[int], RunCall],
        shape: Callable[[int, Outcome], msgspec.Struct],
        within: float | None = None,
        start_within: float | None = None,
        in_order: bool = False,
        preview: OutputPreview | None = None,
    ) -> PendingRequest[Answer]:
        """Put so many calls into the queue, to be answered by what `shape` makes of their outcomes.

        A `preview` is for one call alone. Raises `HttpError` if there is no room.
        """
        app, endpoint = self._app, exchange.path
        defaults = app.config.node.limits
        arrived = time.monotonic()

        async def execute(index: int) -> Answer:
            outcome = await run(call_of(index))
            return Answer.of(outcome, await encoded(outcome, shape(index, outcome)))

        async def run(call: RunCall) -> Outcome:
            if call.within is None or count == 1:
                return Outcome.of(await app.node.run(call.request(defaults), preview))
            left = arrived + call.within - time.monotonic()
            if left > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        return Outcome.of(await app.node.run(call.request(defaults)))
            return Outcome.unrun(call.id, EXPIRED)

        def unrun(index: int, reason: str) -> Answer:
            outcome = Outcome.unrun(call_of(index).id, reason)
            return Answer.of(outcome, [encode(shape(index, outcome))])

        def finished(index: int, answer: Answer | None, waited: float) -> None:
            call, outcome = call_of(index), None if answer is None else answer.outcome
            app.observer.call_ended(endpoint, tenant, call.id, call.code, outcome, waited, "")

        return PendingRequest(
            app.queue,
            tenant,
            exchange.gone,
            count,
            exchange.size,
            execute,
            unrun,
            finished,
            within,
            start_within,
            size_of=lambda answer: answer.size,
            in_order=in_order,
        )


async def encoded(outcome: Outcome, shaped: msgspec.Struct) -> list[bytes]:
    """What was made of an outcome, as JSON in parts; step by step if it is large."""
    shown = (data for display in outcome.displays for data in display.values())
    size = sum(map(len, (outcome.output, outcome.stderr, *outcome.files.values(), *shown)))
    return await encode_in_steps(shaped) if size > STEP else [encode(shaped)]

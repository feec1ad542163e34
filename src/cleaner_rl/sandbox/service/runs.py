"""Our own endpoints for programs that stand alone: `POST /v1/run` and `POST /v1/runs`.

A batch is answered line by line (NDJSON), each result as soon as it is there, with its id and its place in the batch.
That is how a caller has thousands of calls outstanding over a handful of connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence

import msgspec

from cleaner_rl.sandbox.protocol.wire import EXPIRED, BatchCall, Outcome, RunCall, encode
from cleaner_rl.sandbox.service.app import App, Route
from cleaner_rl.sandbox.service.fair_queue import PendingRequest
from cleaner_rl.sandbox.service.http import Exchange, HttpError
from cleaner_rl.sandbox.service.tenants import Tenant

_run_decoder = msgspec.json.Decoder(RunCall)
_batch_decoder = msgspec.json.Decoder(BatchCall)


def add_runs(app: App) -> None:
    """Serve them."""
    runs = Runs(app)
    app.add(
        Route("POST", "/v1/run", runs.run, "Run one program.", RunCall, Outcome),
        Route("POST", "/v1/runs", runs.batch, "Run many; results in order of arrival.", BatchCall, Outcome, lines=True),
    )


class Runs:
    """Runs of stand-alone programs; the other dialects run theirs through `enqueue` as well."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def run(self, exchange: Exchange, tenant: Tenant) -> None:
        """Answer one call."""
        call = await exchange.json(_run_decoder)
        with self.enqueue(exchange, tenant, [call], call.within) as pending:
            ((_, outcome),) = await pending.next()
        await exchange.reply(encode(outcome))

    async def batch(self, exchange: Exchange, tenant: Tenant) -> None:
        """Answer many calls as they end."""
        batch = await exchange.json(_batch_decoder)
        if not batch.calls:
            raise HttpError(400, "invalid_request", "The batch holds no calls.")
        within = batch.calls[0].within if batch.within is None and len(batch.calls) == 1 else batch.within
        with self.enqueue(exchange, tenant, batch.calls, within) as pending:
            while ready := await pending.next():
                lines = []
                for index, outcome in ready:
                    outcome.index = index
                    lines.append(encode(outcome))
                lines.append(b"")
                await exchange.lines(b"\n".join(lines), last=pending.complete)

    def enqueue(
        self,
        exchange: Exchange,
        tenant: Tenant,
        calls: Sequence[RunCall],
        within: float | None = None,
        start_within: float | None = None,
    ) -> PendingRequest[Outcome]:
        """Put some calls into the queue. Raises `HttpError` if there is no room, or if one names impossible limits."""
        app, endpoint = self._app, exchange.path
        defaults = app.config.node.limits
        try:
            for call in calls:
                if call.limits is not None:
                    call.limits.over(defaults)
        except ValueError as error:
            raise HttpError(400, "invalid_request", f"{error}.") from None

        arrived = time.monotonic()

        async def execute(index: int) -> Outcome:
            call = calls[index]
            if call.within is None or len(calls) == 1:
                return Outcome.of(await app.node.run(call.request(defaults)))
            left = arrived + call.within - time.monotonic()
            if left > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        return Outcome.of(await app.node.run(call.request(defaults)))
            return Outcome.unrun(call.id, EXPIRED)

        def unrun(index: int, reason: str) -> Outcome:
            return Outcome.unrun(calls[index].id, reason)

        def finished(index: int, outcome: Outcome | None, waited: float) -> None:
            app.observer.call_ended(endpoint, tenant, calls[index].id, calls[index].code, outcome, waited, "")

        size, deadlines = exchange.size, (within, start_within)
        return PendingRequest(
            app.queue, tenant, exchange.gone, len(calls), size, execute, unrun, finished, *deadlines, result_size
        )


def result_size(outcome: Outcome) -> int:
    """About how many bytes an outcome holds on to."""
    return 512 + len(outcome.output) + len(outcome.stderr) + sum(map(len, outcome.files.values()))

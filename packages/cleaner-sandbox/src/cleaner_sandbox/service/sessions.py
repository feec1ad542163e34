"""Our own endpoints for sessions: open, list, run a cell, go back, put, list and fetch files, close.

A session belongs to the token that opened it, and lives on this node only. It takes one cell at a time: a second one
that comes while the first runs is told so (409), because whoever sent it can't know which state it would see. A cell is
never run twice on its own: if its answer was lost, only the caller can decide what to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import msgspec

from cleaner_sandbox.isolation.tiers import TierError
from cleaner_sandbox.node.preview import OutputPreview
from cleaner_sandbox.node.sessions import Session
from cleaner_sandbox.node.store import NoRoomError
from cleaner_sandbox.protocol.requests import (
    Cell,
    Commit,
    FileList,
    RollbackDeclinedError,
    SessionLostError,
    path_problem,
)
from cleaner_sandbox.protocol.results import RunStatus
from cleaner_sandbox.protocol.wire import (
    BROKEN,
    DRAINING,
    EXPLANATIONS,
    UNKNOWN_SESSION,
    CellCall,
    Outcome,
    RollbackCall,
    RolledBack,
    SessionCall,
    SessionOpened,
    SessionsListed,
    encode,
)
from cleaner_sandbox.service import events
from cleaner_sandbox.service.app import App, Route
from cleaner_sandbox.service.fair_queue import PendingRequest
from cleaner_sandbox.service.http import JSON, Exchange, GoneError, HttpError
from cleaner_sandbox.service.runs import Answer, encoded
from cleaner_sandbox.service.tenants import Tenant

_open_decoder = msgspec.json.Decoder(SessionCall)
_cell_decoder = msgspec.json.Decoder(CellCall)
_rollback_decoder = msgspec.json.Decoder(RollbackCall)

T = TypeVar("T")

BYTES = b"application/octet-stream"


@dataclass(slots=True)
class Held:
    """A session, whose it is, and whether something is being done with it."""

    session: Session
    tenant: Tenant
    busy: bool = False

    def __enter__(self) -> Held:
        if self.busy:
            raise HttpError(409, "session_busy", "The session is still busy with an earlier request.")
        self.busy = True
        return self

    def __exit__(self, *_: object) -> None:
        self.busy = False


class CellAnswer(NamedTuple):
    """What the caller of a cell gets: the bytes that are sent, or the error in their place."""

    answer: Answer
    error: HttpError | None = None


def add_sessions(app: App) -> None:
    """Serve them."""
    sessions = Sessions(app)
    one = "/v1/sessions/{session}"
    app.add(
        Route("POST", "/v1/sessions", sessions.open, "Open a session.", SessionCall, SessionOpened),
        Route("GET", "/v1/sessions", sessions.list_own, "List your open sessions.", None, SessionsListed),
        Route("POST", f"{one}/run", sessions.run, "Run a cell.", CellCall, Outcome),
        Route("POST", f"{one}/rollback", sessions.rollback, "Go back to a checkpoint.", RollbackCall, RolledBack),
        Route("GET", f"{one}/files", sessions.list_files, "List the files of the session.", None, FileList),
        Route("PUT", f"{one}/files/{{path}}", sessions.put, "Put the body into the session as a file.", None, Outcome),
        Route("GET", f"{one}/files/{{path}}", sessions.fetch, "Fetch a file of the session."),
        Route("DELETE", one, sessions.close, "Close the session."),
    )


class Sessions:
    """The open sessions of a node."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._held: dict[str, Held] = {}

    async def open(self, exchange: Exchange, tenant: Tenant) -> None:
        """Open one."""
        call = await exchange.json(_open_decoder)
        self._app.queue.check(tenant, 0, 0)
        self._forget_lost()
        with tenant.passing_session():
            leaving = asyncio.ensure_future(exchange.gone())
            try:
                session = await self._opened(call, tenant)
            finally:
                left = leaving.done()
                leaving.cancel()
            held = self._held[session.id] = Held(session, tenant)
            tenant.sessions.add(session)
        try:
            if left:
                raise GoneError
            await exchange.reply(encode(SessionOpened(session.id)), status=201)
        except BaseException:  # nobody will ever hear its name
            self._forget(held)
            await session.close()
            raise

    async def run(self, exchange: Exchange, tenant: Tenant) -> None:
        """Run a cell."""
        with self._find(exchange, tenant) as held:
            call = await exchange.json(_cell_decoder)
            try:
                cell = call.cell(self._app.config.node.limits)
            except ValueError as error:
                raise HttpError(400, "invalid_request", f"{error}.") from None
            await self._cell(exchange, held, cell, within=call.within)

    async def put(self, exchange: Exchange, tenant: Tenant) -> None:
        """Put a file: an empty cell that brings it along, so that it rolls back like any other cell."""
        with self._find(exchange, tenant) as held:
            cell = Cell("", commit=Commit.ON_SUCCESS, files={_file_name(exchange): await exchange.body()})
            await self._cell(exchange, held, cell)

    async def fetch(self, exchange: Exchange, tenant: Tenant) -> None:
        """Fetch a file: an empty cell that leaves no trace."""
        name = _file_name(exchange)
        with self._find(exchange, tenant) as held:
            await exchange.body()
            await self._cell(exchange, held, Cell("", commit=Commit.NEVER, fetch=(name,)), BYTES)

    async def rollback(self, exchange: Exchange, tenant: Tenant) -> None:
        """Go back."""
        with self._find(exchange, tenant) as held:
            call = await exchange.json(_rollback_decoder)

            async def go_back() -> RolledBack:
                return RolledBack(await held.session.rollback(call.checkpoint))

            await self._in_slot(exchange, held, go_back)

    async def list_files(self, exchange: Exchange, tenant: Tenant) -> None:
        """List the files of one."""
        with self._find(exchange, tenant) as held:
            await exchange.body()
            await self._in_slot(exchange, held, held.session.list_files)

    async def list_own(self, exchange: Exchange, tenant: Tenant) -> None:
        """List the caller's own."""
        self._forget_lost()
        own = [held.session.info for held in self._held.values() if held.tenant is tenant]
        await exchange.reply(encode(SessionsListed(own)))

    async def close(self, exchange: Exchange, tenant: Tenant) -> None:
        """Close one, whatever it is doing."""
        held = self._find(exchange, tenant)
        self._forget(held)
        await held.session.close()
        await exchange.reply(status=204)

    async def _opened(self, call: SessionCall, tenant: Tenant) -> Session:
        try:
            return await self._app.node.open_session(
                call.request(self._app.config.node.limits), tenant.name, len(self._app.tenants)
            )
        except TierError as error:
            raise HttpError(501, "no_sessions", f"{error}") from None
        except ValueError as error:
            raise HttpError(400, "invalid_request", f"{error}") from None
        except NoRoomError as error:
            raise HttpError(429, "too_many_sessions", f"{error}", ((b"retry-after", b"1"),)) from None
        except SessionLostError:
            raise _unavailable(BROKEN) from None

    async def _cell(
        self, exchange: Exchange, held: Held, cell: Cell, content_type: bytes = JSON, within: float | None = None
    ) -> None:
        """Run a cell, and answer with its outcome, or with the file that it fetched."""
        app, endpoint = self._app, "/v1/sessions/{session}/run"
        preview = OutputPreview() if content_type is JSON and events.wanted(exchange) else None

        async def execute(_: int) -> CellAnswer:
            try:
                outcome = Outcome.of_cell(await self._alive(held, held.session.run(cell, preview)))
            except HttpError as error:
                # A lost session is told as such; in the counts it is one more call that the node broke.
                return CellAnswer(Answer(Outcome.unrun(cell.request_id, BROKEN), ()), error)
            if content_type is BYTES:
                return _fetched(cell, outcome)
            return CellAnswer(Answer.of(outcome, await encoded(outcome, outcome)))

        def unrun(_: int, reason: str) -> CellAnswer:
            outcome = Outcome.unrun(cell.request_id, reason)
            return _fetched(cell, outcome) if content_type is BYTES else CellAnswer(Answer(outcome, [encode(outcome)]))

        def finished(_: int, ended: CellAnswer | None, waited: float) -> None:
            outcome = None if ended is None else ended.answer.outcome
            app.observer.call_ended(endpoint, held.tenant, cell.request_id, cell.code, outcome, waited, held.session.id)

        with PendingRequest(
            app.queue,
            held.tenant,
            exchange.gone,
            1,
            exchange.size,
            execute,
            unrun,
            finished,
            within,
            size_of=lambda ended: ended.answer.size,
        ) as pending:
            if preview is not None:
                ended = await events.ended(exchange, pending, preview)
                await events.end(exchange, ended.answer.parts, ended.error)
                return
            ((_, ended),) = await pending.next()
            if ended.error is not None:
                raise ended.error
            await exchange.reply(*ended.answer.parts, content_type=content_type)

    async def _in_slot(
        self, exchange: Exchange, held: Held, doing: Callable[[], Coroutine[object, object, object]]
    ) -> None:
        """Do something in a slot, like a cell, because it may run some; answer with what it returns."""

        async def execute(_: int) -> bytes | HttpError:
            try:
                return encode(await self._alive(held, doing()))
            except RollbackDeclinedError as error:
                return HttpError(409, "rollback_declined", f"{error}")
            except HttpError as error:
                return error

        with PendingRequest(
            self._app.queue,
            held.tenant,
            exchange.gone,
            1,
            exchange.size,
            execute,
            lambda _, reason: _unavailable(reason),
            lambda *_: None,
            size_of=lambda ended: len(ended) if isinstance(ended, bytes) else 0,
        ) as pending:
            ((_, ended),) = await pending.next()
            if isinstance(ended, HttpError):
                raise ended
            await exchange.reply(ended)

    async def _alive(self, held: Held, doing: Coroutine[object, object, T]) -> T:
        try:
            return await doing
        except SessionLostError as error:
            self._forget(held)
            if self._app.queue.draining:  # it can be made again elsewhere
                raise _unavailable(DRAINING) from None
            raise HttpError(410, "session_lost", f"The session is lost: {error}") from None

    def _find(self, exchange: Exchange, tenant: Tenant) -> Held:
        held = self._held.get(exchange.tail[0])
        if held is None or held.tenant is not tenant:
            why = self._app.node.why_lost(exchange.tail[0])
            if why is None:
                raise HttpError(
                    410, UNKNOWN_SESSION, "There is no such session here: never opened, or before a restart."
                )
            raise HttpError(410, "session_lost", f"The session is lost: session lost: {why}")
        return held

    def _forget(self, held: Held) -> None:
        if self._held.pop(held.session.id, None) is not None:
            held.tenant.sessions.discard(held.session)

    def _forget_lost(self) -> None:
        # The node ends sessions by itself and tells whoever comes back; those of callers who never do must not add up.
        for held in [held for held in self._held.values() if held.session.lost]:
            self._forget(held)


def _fetched(cell: Cell, outcome: Outcome) -> CellAnswer:
    (name,) = cell.fetch
    content, error = outcome.files.get(name), None
    if outcome.status is RunStatus.FAULT:
        error = _unavailable(outcome.fault)
    elif content is None:
        error = HttpError(
            404,
            "no_file",
            "The session has no such file that could be fetched; a cell's `fetch` takes folders and patterns.",
        )
    return CellAnswer(Answer.of(outcome, [content or b""]), error)


def _unavailable(reason: str) -> HttpError:
    return HttpError(503, reason, EXPLANATIONS[reason], ((b"retry-after", b"1"),))


def _file_name(exchange: Exchange) -> str:
    name = exchange.tail[1]
    if (problem := path_problem(name)) is not None:
        raise HttpError(400, "invalid_request", f"The file name {problem}.")
    return name

"""A session on a remote node: the same face as the node's own.

A session outlives its node. Its client keeps each committed cell, and a digest of what it showed. Where the node shuts
down, breaks or has restarted, it opens another session, runs the cells again, and sends the waiting call there. Where
a cell shows something else than it did, the session is lost.

A cell whose answer does not arrive in time is not sent again, because nobody can tell what state it would meet: the
session counts as lost, and the caller rebuilds it from the cells it has.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec

from cleaner_sandbox.client.links import (
    MOST_LINE,
    MOST_PROBLEM,
    NOT_TAKEN,
    UNREADABLE,
    Link,
    read,
    retry_seconds,
    sendable,
)
from cleaner_sandbox.client.nodes import Nodes
from cleaner_sandbox.isolation.tiers import TierError
from cleaner_sandbox.protocol.requests import (
    Cell,
    CellOutcome,
    Commit,
    FileList,
    RollbackDeclinedError,
    RunOutcome,
    SessionInfo,
    SessionLostError,
    SessionRequest,
    path_problem,
)
from cleaner_sandbox.protocol.results import RunResult, RunStatus
from cleaner_sandbox.protocol.wire import (
    BROKEN,
    DRAINING,
    UNKNOWN_SESSION,
    CellCall,
    Outcome,
    Problem,
    RollbackCall,
    RolledBack,
    SessionCall,
    SessionOpened,
    SessionsListed,
    encode_exactly,
)

T = TypeVar("T")

ANSWER_SECONDS = 2.0
"""That a node has, above the caller's own `within`, to say that the time is over."""
LIST_SECONDS = 10.0
"""Within which a node has to list sessions."""
MOST_MOVES = 3
"""Of a session during one call, which may be what breaks its nodes."""
NO_UNICODE = "The program holds characters that are no valid Unicode."


class SessionBusyError(Exception):
    """Another cell of the session is still running."""


class _NodeGoneError(SessionLostError):
    """The session's node shuts down, does not answer, or has restarted."""


async def open_session(
    http: aiohttp.ClientSession, nodes: Nodes, request: SessionRequest, patience: float
) -> RemoteSession:
    """Open a session on a node that has room. Raises `TierError` if the nodes have none, `ValueError` if none could."""
    node, session = await _opened(http, nodes, request, patience)
    # Files come in by a cell of their own.
    cells = [_Kept(Cell("", files=request.files), None)] if request.files else []
    return RemoteSession(http, node, session, patience, len(cells), _Origin(nodes, replace(request, files={}), cells))


async def _opened(
    http: aiohttp.ClientSession, nodes: Nodes, request: SessionRequest, patience: float
) -> tuple[str, str]:
    """The node and the id of a new session."""
    try:
        data = encode_exactly(SessionCall.of(request))
    except UnicodeEncodeError:
        raise ValueError("the session's request holds characters that are no valid Unicode") from None
    reason = "None could be reached."
    full: set[Link] = set()
    """Of sessions. They aren't left alone by everybody: they take programs all the same."""
    pause = 0.0
    try:
        async with asyncio.timeout(patience):
            while True:
                link = await nodes.pick(full)
                if link is None:
                    await asyncio.sleep(nodes.next_awake)
                    continue
                if link in full:  # and so are all others
                    await asyncio.sleep(pause)
                    full.clear()
                try:
                    async with http.post(
                        f"{link.url}/v1/sessions", data=sendable(data), allow_redirects=False
                    ) as response:
                        body = await read(response, MOST_PROBLEM)
                    if response.status == 201:
                        session = _session_id(body)
                        link.is_back()
                        return link.url, session
                except (aiohttp.ClientError, OSError, *UNREADABLE) as error:
                    reason = str(error)
                    link.rest()
                    continue
                problem = _problem(response.status, body)
                if problem.error == "no_sessions":
                    raise TierError(problem.message)
                if problem.error == "too_many_sessions":
                    link.is_back()
                    full.add(link)
                    pause = retry_seconds(response.headers.get("retry-after"))
                elif response.status in NOT_TAKEN:
                    link.rest(retry_seconds(response.headers.get("retry-after")))
                elif response.status >= 500:
                    link.rest()
                else:
                    raise _error(response.status, problem)
                reason = problem.message
    except TimeoutError:
        raise SessionLostError(nodes.given_up(reason)) from None


async def list_sessions(http: aiohttp.ClientSession, node: str) -> list[SessionInfo]:
    """List the caller's sessions on one node. Raises `PermissionError` if the node wants another token."""
    async with (
        asyncio.timeout(LIST_SECONDS),
        http.get(f"{node}/v1/sessions", allow_redirects=False) as response,
    ):
        body = await read(response, MOST_LINE)
    if response.status != 200:
        message = _problem(response.status, body).message
        raise PermissionError(message) if response.status == 401 else aiohttp.ClientPayloadError(message)
    return [replace(each, node=node) for each in msgspec.json.decode(body, type=SessionsListed).sessions]


class _Kept(NamedTuple):
    """A cell that the session holds."""

    cell: Cell
    shown: int | None
    """Digest of what it showed; None: nobody has seen it."""


@dataclass(slots=True)
class _Origin:
    """All that it takes to make a session again: as many cells as the number of the state that it is at."""

    nodes: Nodes
    request: SessionRequest
    cells: list[_Kept]


class RemoteSession:
    """Keeps an interpreter alive on a remote node, as `Session` does here; takes one request at a time."""

    def __init__(
        self,
        http: aiohttp.ClientSession,
        node: str,
        session: str,
        patience: float,
        checkpoint: int,
        origin: _Origin | None = None,
    ) -> None:
        self.id, self.node = session, node
        """Where it is now."""
        self._http, self._patience = http, patience
        self._url = f"{node}/v1/sessions/{session}"
        self._checkpoint = checkpoint
        self._origin = origin
        """None: it can't be made again."""
        self._moving = asyncio.Lock()

    @property
    def checkpoint(self) -> int:
        """Return the number of the state that it is at, as far as its node has answered."""
        return self._checkpoint

    async def run(self, cell: Cell | str, within: float | None = None) -> CellOutcome:
        """Run a cell, `within` so many seconds if they are given.

        Raises `SessionLostError` if the state is gone and can't be made again, or if it can't be known: the node did
        not answer in time.
        """
        cell = Cell(cell) if isinstance(cell, str) else cell
        try:
            body = encode_exactly(CellCall.of(cell, within))
        except UnicodeEncodeError:
            result = RunResult(RunStatus.MALFORMED, explanation=NO_UNICODE)
            return CellOutcome(RunOutcome(result, request_id=cell.request_id), False, self._checkpoint)
        outcome = await self._ask("POST", "/run", Outcome, body, within)
        if outcome.fault == BROKEN:
            raise SessionLostError(outcome.explanation)
        return self._follow(cell, outcome)

    async def rollback(self, checkpoint: int | None = None) -> int:
        """Go back to a checkpoint (None: the state before the last committed cell); returns where it is now."""
        answer = await self._ask("POST", "/rollback", RolledBack, encode_exactly(RollbackCall(checkpoint)))
        self._stands_at(answer.checkpoint)
        return answer.checkpoint

    async def put(self, path: str, content: bytes) -> None:
        """Put a file into the session's folder; it rolls back like a cell. Raises `ValueError` if it doesn't fit."""
        outcome = await self._ask("PUT", _file_path(path), Outcome, content)
        self._follow(Cell("", commit=Commit.ON_SUCCESS, files={path: content}), outcome)
        if outcome.status is RunStatus.OK:
            return
        why = outcome.explanation if outcome.exception is None else outcome.exception.message
        if outcome.status is RunStatus.FAULT:
            raise SessionLostError(why)
        raise ValueError(f"the file {path!r} can't be put into the session: {why}")

    async def fetch(self, path: str) -> bytes:
        """Return a file of the session. Raises `FileNotFoundError` if there is none that could be fetched."""
        return await self._ask("GET", _file_path(path), bytes, b"")

    async def fetch_all(self, *paths: str) -> Mapping[str, bytes]:
        """Return files of the session by their paths: single ones, all below a folder, or all that match a pattern.

        What isn't there is left out. Raises `ValueError` for a path that can't be one, and if there is more than the
        node gives at once: `run` with `Cell.fetch` then returns a part.
        """
        run = (await self.run(Cell("", commit=Commit.NEVER, fetch=paths))).run
        if run.result.status is RunStatus.FAULT:
            raise SessionLostError(run.result.explanation)
        if run.result.status is not RunStatus.OK:
            raise ValueError(run.result.explanation)
        if run.files_left_out:
            raise ValueError(
                f"{run.files_left_out} or more of the files are too large or too many together; fetch fewer at once"
            )
        return run.files

    async def list_files(self) -> FileList:
        """List the files below the session's working folder."""
        return await self._ask("GET", "/files", FileList, b"")

    async def close(self) -> None:
        """End the session; closing twice, or a lost one, is fine."""
        self._origin = None
        await self._close(self._url)

    async def _close(self, url: str) -> None:
        try:
            async with asyncio.timeout(self._patience), self._http.delete(url, allow_redirects=False):
                pass
        except (aiohttp.ClientError, OSError):
            return

    def _follow(self, cell: Cell, outcome: Outcome) -> CellOutcome:
        """Note what a cell has come to."""
        if outcome.checkpoint is None:
            outcome.checkpoint = self._checkpoint
        ended = outcome.cell_outcome()
        if ended.committed and self._origin is not None:
            self._origin.cells.append(_Kept(replace(cell, fetch=(), request_id=""), hash(ended.result.observed)))
        self._stands_at(ended.checkpoint)
        return ended

    def _stands_at(self, checkpoint: int) -> None:
        self._checkpoint = checkpoint
        if self._origin is not None:
            del self._origin.cells[checkpoint:]
            if len(self._origin.cells) != checkpoint:
                self._origin = None  # the node counts otherwise than its cells: nobody could make such a state again

    async def _ask(self, method: str, path: str, kind: type[T], body: bytes, within: float | None = None) -> T:
        moves = 0
        try:
            # The node answers in time itself if it is alive, and then the session may be, too.
            async with asyncio.timeout(None if within is None else max(0.0, within) + ANSWER_SECONDS):
                url = self._url
                while True:
                    try:
                        if moves:
                            await self._move(url)
                        url = self._url
                        return await self._answer(url, method, path, kind, body)
                    except _NodeGoneError:
                        moves += 1
                        if self._origin is None or moves > MOST_MOVES:
                            raise
        except TimeoutError:
            raise SessionLostError(f"the node did not answer within {within:g} s") from None
        except UNREADABLE as error:
            raise SessionLostError(f"the node's answer could not be read: {error!r}") from error

    async def _move(self, gone: str) -> None:
        """Make the session again on a node that has room, unless another call has done so."""
        async with self._moving:
            origin = self._origin
            if self._url != gone or origin is None:
                return
            try:
                node, session = await _opened(self._http, origin.nodes, origin.request, self._patience)
            except (TierError, ValueError) as error:  # the nodes that are left are others
                raise SessionLostError(
                    f"the session's node {self.node} is gone, and no other takes it: {error}"
                ) from error
            url = f"{node}/v1/sessions/{session}"
            try:
                for number, (cell, shown) in enumerate(origin.cells, 1):
                    call = encode_exactly(CellCall.of(replace(cell, commit=Commit.ALWAYS), None))
                    outcome = await self._answer(url, "POST", "/run", Outcome, call)
                    if outcome.fault:
                        raise _NodeGoneError(outcome.explanation)
                    if not outcome.committed or shown not in (None, hash(outcome.cell_outcome().result.observed)):
                        self._origin = None
                        raise SessionLostError(
                            f"the session's node {self.node} is gone, and its cell {number} of {len(origin.cells)} did "
                            f"not show the same when it ran again on {node}"
                        )
            except BaseException:
                await asyncio.shield(self._close(url))
                raise
            self.id, self.node, self._url = session, node, url

    async def _answer(self, url: str, method: str, path: str, kind: type[T], body: bytes) -> T:
        begun = time.monotonic()
        while True:
            status, retry_after, content = await self._exchange(method, url + path, body)
            if status == 200:
                # A type checker can't know that `kind` is bytes here; a file is what it is.
                answer: T = content if kind is bytes else msgspec.json.decode(content, type=kind)  # type: ignore[assignment]
                if isinstance(answer, Outcome) and answer.fault == DRAINING:
                    raise _NodeGoneError(answer.explanation)
                return answer
            problem = _problem(status, content)
            if status != 429 or time.monotonic() - begun > self._patience:
                raise _error(status, problem)
            await asyncio.sleep(retry_seconds(retry_after))

    async def _exchange(self, method: str, url: str, body: bytes) -> tuple[int, str | None, bytes]:
        try:
            async with self._http.request(method, url, data=sendable(body), allow_redirects=False) as response:
                return response.status, response.headers.get("retry-after"), await read(response, MOST_LINE)
        except (aiohttp.ClientError, OSError) as error:
            raise _NodeGoneError(f"the node did not answer: {error!r}") from error


def is_session_id(text: str) -> bool:
    """Whether a text can be part of a session's URL."""
    return re.fullmatch(r"[0-9a-f]{32}", text) is not None


def _session_id(body: bytes) -> str:
    session = msgspec.json.decode(body, type=SessionOpened).session
    if not is_session_id(session):
        raise aiohttp.ClientPayloadError("the node gave the session an id that no node gives")
    return session


def _file_path(name: str) -> str:
    # Checked here as well as there: on its way, a URL with `..` in it becomes that of something else.
    if (problem := path_problem(name)) is not None:
        raise ValueError(f"the file name {name!r} {problem}")
    return f"/files/{quote(name)}"


def _error(status: int, problem: Problem) -> Exception:
    if problem.error == "rollback_declined":
        return RollbackDeclinedError(problem.message)
    if problem.error == "session_busy":
        return SessionBusyError(problem.message)
    if problem.error == "no_file":
        return FileNotFoundError(problem.message)
    if problem.error in (DRAINING, UNKNOWN_SESSION):
        return _NodeGoneError(problem.message)
    if status == 400:
        return ValueError(problem.message)
    return SessionLostError(problem.message)


def _problem(status: int, body: bytes) -> Problem:
    try:
        return msgspec.json.decode(body, type=Problem)
    except UNREADABLE:
        return Problem("unknown", f"The node answered with status {status}.")

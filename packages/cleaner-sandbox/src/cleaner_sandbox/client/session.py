"""A session on a remote node: the same face as the node's own.

A cell whose answer does not arrive is not sent again, because nobody can tell what state it would meet: the session
counts as lost, and the caller rebuilds it from the cells it has.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar
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
NO_UNICODE = "The program holds characters that are no valid Unicode."


class SessionBusyError(Exception):
    """Another cell of the session is still running."""


async def open_session(
    http: aiohttp.ClientSession, nodes: Nodes, request: SessionRequest, patience: float
) -> RemoteSession:
    """Open a session on a node that has room. Raises `TierError` if the nodes have none, `ValueError` if none could."""
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
                        # Files come in by a cell of their own.
                        return RemoteSession(http, link.url, session, patience, checkpoint=1 if request.files else 0)
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


class RemoteSession:
    """Keeps an interpreter alive on a remote node, as `Session` does here; takes one request at a time."""

    def __init__(self, http: aiohttp.ClientSession, node: str, session: str, patience: float, checkpoint: int) -> None:
        self.id, self.node = session, node
        self._http, self._patience = http, patience
        self._url = f"{node}/v1/sessions/{session}"
        self._checkpoint = checkpoint

    @property
    def checkpoint(self) -> int:
        """Return the number of the state that it is at, as far as its node has answered."""
        return self._checkpoint

    async def run(self, cell: Cell | str, within: float | None = None) -> CellOutcome:
        """Run a cell, `within` so many seconds if they are given.

        Raises `SessionLostError` if the state is gone, or if it can't be known: the node did not answer in time.
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
        outcome.checkpoint = self._follow(outcome)
        return outcome.cell_outcome()

    async def rollback(self, checkpoint: int | None = None) -> int:
        """Go back to a checkpoint (None: the state before the last committed cell); returns where it is now."""
        answer = await self._ask("POST", "/rollback", RolledBack, encode_exactly(RollbackCall(checkpoint)))
        self._checkpoint = answer.checkpoint
        return answer.checkpoint

    async def put(self, path: str, content: bytes) -> None:
        """Put a file into the session's folder; it rolls back like a cell. Raises `ValueError` if it doesn't fit."""
        outcome = await self._ask("PUT", _file_path(path), Outcome, content)
        self._follow(outcome)
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
        try:
            async with asyncio.timeout(self._patience), self._http.delete(self._url, allow_redirects=False):
                pass
        except (aiohttp.ClientError, OSError):
            return

    def _follow(self, outcome: Outcome) -> int:
        self._checkpoint = self._checkpoint if outcome.checkpoint is None else outcome.checkpoint
        return self._checkpoint

    async def _ask(self, method: str, path: str, kind: type[T], body: bytes, within: float | None = None) -> T:
        begun = time.monotonic()
        try:
            # The node answers in time itself if it is alive, and then the session may be, too.
            async with asyncio.timeout(None if within is None else max(0.0, within) + ANSWER_SECONDS):
                while True:
                    status, retry_after, answer = await self._exchange(method, path, body)
                    if status == 200:
                        # A type checker can't know that `kind` is bytes here; a file is what it is.
                        return answer if kind is bytes else msgspec.json.decode(answer, type=kind)  # type: ignore[return-value]
                    problem = _problem(status, answer)
                    if status != 429 or time.monotonic() - begun > self._patience:
                        raise _error(status, problem)
                    await asyncio.sleep(retry_seconds(retry_after))
        except TimeoutError:
            raise SessionLostError(f"the node did not answer within {within:g} s") from None
        except UNREADABLE as error:
            raise SessionLostError(f"the node's answer could not be read: {error!r}") from error

    async def _exchange(self, method: str, path: str, body: bytes) -> tuple[int, str | None, bytes]:
        try:
            async with self._http.request(
                method, self._url + path, data=sendable(body), allow_redirects=False
            ) as response:
                return response.status, response.headers.get("retry-after"), await read(response, MOST_LINE)
        except (aiohttp.ClientError, OSError) as error:
            raise SessionLostError(f"the node did not answer: {error!r}") from error


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
    if status == 400:
        return ValueError(problem.message)
    return SessionLostError(problem.message)


def _problem(status: int, body: bytes) -> Problem:
    try:
        return msgspec.json.decode(body, type=Problem)
    except UNREADABLE:
        return Problem("unknown", f"The node answered with status {status}.")

"""The client: the same face as a node, over any number of them.

A call is sent again, under the same id, as long as its result can't be the program's doing: to another node when one
broke, after a pause when all are full. The caller feels that as waiting. `patience` bounds the waiting for nodes that
are full or away, `attempts` how often a call may take down what runs it; then it is answered as a fault. Nothing about
the infrastructure is ever raised or reported as the program's failure.

Limits: a node that is stuck but alive is noticed only by the caller's own deadline (`within`).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

import aiohttp

from cleaner_sandbox.client.links import NOT_TAKEN, UNREADABLE, Call, Link, events, probing_socket
from cleaner_sandbox.client.nodes import Nodes
from cleaner_sandbox.client.session import (
    NO_UNICODE,
    RemoteSession,
    is_session_id,
    list_sessions,
    open_session,
)
from cleaner_sandbox.protocol.requests import (
    OutputText,
    RunOutcome,
    RunRequest,
    SandboxUnavailableError,
    SessionInfo,
    SessionRequest,
)
from cleaner_sandbox.protocol.results import RunResult, RunStatus
from cleaner_sandbox.protocol.wire import BROKEN, DRAINING, EXPIRED, Outcome, RunCall, encode_exactly

ANSWER_SECONDS = 10.0
"""Within which a node has to run an empty program."""

_log = logging.getLogger(__name__)


class RequestRefusedError(Exception):
    """The nodes won't take the request itself: a wrong token, or a client and a node of different versions."""


class SandboxClient:
    """Runs programs on remote nodes, with the methods that a `Node` has.

    Examples:
        >>> import asyncio
        >>> from cleaner_sandbox.client import SandboxClient
        >>> async def main() -> str:
        ...     async with SandboxClient(["http://127.0.0.1:8089"]) as sandbox:
        ...         return (await sandbox.run("print(6 * 7)")).result.output
        >>> asyncio.run(main())
        '42\\n'
    """

    def __init__(
        self,
        nodes: Sequence[str] | str,
        *,
        token: str | None = None,
        patience: float = 300.0,
        attempts: int = 4,
        connections: int = 256,
    ) -> None:
        """Take the addresses of the nodes; entering the client connects to them.

        Args:
            nodes: URLs, `dns://name:port` with one address per node, or `ray:`.
            token: What the nodes ask for, if they do.
            patience: Seconds that a call waits for nodes that are full or away; the fault it then gets says so. That no
                node answers is logged as a warning, once.
            attempts: How often a call may be lost with what runs it, before it is answered as a fault.
            connections: The most per node.
        """
        self._sources = [nodes] if isinstance(nodes, str) else list(nodes)
        # Nothing is to be compressed, and nothing is decompressed: a few kilobytes could become gigabytes.
        self._headers = {"content-type": "application/json", "accept-encoding": "identity"}
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"
        self._patience, self._attempts, self._connections = patience, attempts, connections
        self._name = uuid.uuid4().hex[:12]
        self._numbers = itertools.count()

    async def __aenter__(self) -> Self:
        # No limit over all: a call may wait in a long queue. A process that dies closes its connections; a machine that
        # vanishes is noticed by the sockets' own probes.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0)
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30, socket_factory=probing_socket)
        self._http = aiohttp.ClientSession(
            connector=connector, timeout=timeout, headers=self._headers, read_bufsize=2**20, auto_decompress=False
        )
        self._nodes = Nodes(self._sources, lambda url: Link(url, self._http, self._connections), self._patience)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._nodes.close()
        await self._http.close()

    async def run(self, request: RunRequest | str, within: float | None = None) -> RunOutcome:
        """Run a program; one that is not answered `within` so many seconds is answered as a fault.

        Raises `RequestRefusedError` if no node can ever take the request. Cancelling gives the call up.
        """
        request = self._named(RunRequest(request) if isinstance(request, str) else request)
        begun = time.monotonic()
        try:
            body = encode_exactly(RunCall.of(request, within))
        except UnicodeEncodeError:
            result = RunResult(RunStatus.MALFORMED, explanation=NO_UNICODE)
            return RunOutcome(result, request_id=request.request_id)
        try:
            async with asyncio.timeout(within):
                return await self._run(request.request_id, body, begun)
        except TimeoutError:
            return Outcome.unrun(request.request_id, EXPIRED).run_outcome()

    async def stream(
        self, request: RunRequest | str, within: float | None = None
    ) -> AsyncGenerator[OutputText | RunOutcome, None]:
        """Run a program; yields what it prints while it runs, and last its outcome, as `run` returns it.

        The texts are a preview, to be shown: what is printed last is in the outcome only. If the node breaks or has no
        room, the program is run by `run`, without a preview.
        """
        request = self._named(RunRequest(request) if isinstance(request, str) else request)
        begun = time.monotonic()
        link = await self._nodes.pick()
        started = False
        try:
            if link is not None:
                async for item in events(self._http, link.url, encode_exactly(RunCall.of(request, within))):
                    started = True
                    if isinstance(item, OutputText):
                        yield item
                    elif item.fault not in (BROKEN, DRAINING):
                        yield item.run_outcome()
                        return
        except (aiohttp.ClientError, OSError, UnicodeEncodeError, *UNREADABLE) as error:
            _log.debug("a stream from %s broke: %r", link and link.url, error)
        left = None if within is None else within - (time.monotonic() - begun)
        outcome = await self.run(request, left)
        yield replace(outcome, attempts=outcome.attempts + started)

    def _named(self, request: RunRequest) -> RunRequest:
        return replace(request, request_id=request.request_id or f"{self._name}-{next(self._numbers)}")

    async def _run(self, call_id: str, body: bytes, begun: float) -> RunOutcome:
        loop = asyncio.get_running_loop()
        alone = False
        failed_at: set[Link] = set()
        attempts = 0
        ran = 0  # how often it may have: a node that broke has tried more than once
        fault = Outcome.unrun(call_id, BROKEN)
        reason = "None could be reached."
        since = begun  # when a node last had the call: waiting in a node's queue is no test of patience
        while time.monotonic() - since < self._patience and attempts < self._attempts:
            link = await self._nodes.pick(failed_at)
            if link is None:
                await asyncio.sleep(self._nodes.next_awake)
                continue
            call = Call(call_id, body, loop.create_future(), alone)
            answer = await link.ask(call)
            alone = call.alone
            if isinstance(answer, Outcome) or answer.may_have_run:
                since = time.monotonic()
            if isinstance(answer, Outcome):
                if answer.fault == DRAINING:
                    link.rest()
                elif answer.fault == BROKEN:
                    attempts += 1
                    ran += answer.attempts
                    failed_at.add(link)
                    fault, reason = answer, answer.explanation
                else:
                    answer.attempts += ran
                    return answer.run_outcome()
                continue
            if answer.may_have_run:
                attempts += 1
                ran += 1
                failed_at.add(link)
            elif answer.status == 413:
                return RunOutcome(RunResult(RunStatus.REFUSED, explanation=answer.message), request_id=call_id)
            elif answer.status not in (0, *NOT_TAKEN):
                raise RequestRefusedError(answer.message)
            fault.explanation = reason = answer.message
        if attempts < self._attempts:
            fault.explanation = self._nodes.given_up(reason)
        fault.attempts = max(1, ran)
        return fault.run_outcome()

    async def run_many(self, requests: Iterable[RunRequest | str]) -> AsyncIterator[tuple[int, RunOutcome]]:
        """Run many programs at once; yields each outcome, with its request's place, as soon as it is there."""

        async def numbered(index: int, request: RunRequest | str) -> tuple[int, RunOutcome]:
            return index, await self.run(request)

        tasks = [asyncio.create_task(numbered(index, request)) for index, request in enumerate(requests)]
        try:
            for done in asyncio.as_completed(tasks):
                yield await done
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def require_answer(self) -> None:
        """Run an empty program, and raise `SandboxUnavailableError` if no node answers within seconds.

        Other calls wait for nodes that are down; use this to report a wrong address early.
        """
        where = ", ".join(self._sources)
        try:
            result = (await self.run("", within=ANSWER_SECONDS)).result
        except RequestRefusedError as error:
            raise SandboxUnavailableError(
                f"the sandbox at {where} refuses: {error}; give --sandbox-token if it wants one"
            ) from None
        if result.status is RunStatus.FAULT:
            raise SandboxUnavailableError(
                f"no sandbox answers at {where}: start one (`cleaner-sandbox serve`), or correct --sandbox"
            )

    async def open_session(self, request: SessionRequest | None = None) -> RemoteSession:
        """Open a stateful interpreter on one of the nodes, where it stays.

        Raises `SessionLostError` if none can now, `ValueError` if none ever could: its files don't fit, or the nodes
        have no such environment.
        """
        return await open_session(self._http, self._nodes, request or SessionRequest(), self._patience)

    async def list_sessions(self) -> list[SessionInfo]:
        """List the sessions that the client's token has open on all nodes, whoever opened them.

        A node that doesn't answer is left out, with a warning in the log. Raises `RequestRefusedError` if a node does
        not take the token.
        """
        nodes = await self._nodes.every()
        answers = await asyncio.gather(*(list_sessions(self._http, node) for node in nodes), return_exceptions=True)
        found: list[SessionInfo] = []
        for node, answer in zip(nodes, answers, strict=True):
            if isinstance(answer, PermissionError):
                raise RequestRefusedError(f"{answer}")
            if isinstance(answer, (aiohttp.ClientError, OSError, *UNREADABLE)):
                _log.warning("the sessions of %s can't be listed: %r", node, answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found += answer
        return found

    def attach_session(self, session: SessionInfo) -> RemoteSession:
        """Return a session that is open already, as `list_sessions` describes it; for example to close it."""
        if not is_session_id(session.id):
            raise ValueError(f"{session.id!r} is not the id of a session: take one from `list_sessions`")
        return RemoteSession(self._http, session.node, session.id, self._patience, session.checkpoint)

"""The client for code that isn't asynchronous: the same calls, on an event loop in a thread of their own.

One instance may be used from many threads at once; their calls share connections.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar

from cleaner_sandbox.client.client import SandboxClient
from cleaner_sandbox.client.session import RemoteSession
from cleaner_sandbox.protocol.requests import (
    Cell,
    CellOutcome,
    FileList,
    OutputText,
    RunOutcome,
    RunRequest,
    SessionInfo,
    SessionRequest,
)

T = TypeVar("T")


class SyncSandboxClient:
    """Runs programs on remote nodes, for code that isn't asynchronous; many threads may share one.

    Examples:
        >>> from cleaner_sandbox.client import SyncSandboxClient
        >>> with SyncSandboxClient("http://127.0.0.1:8089") as sandbox:
        ...     print(sandbox.run("print(6 * 7)").result.output, end="")
        42
    """

    def __init__(self, nodes: Sequence[str] | str, *, token: str | None = None, patience: float = 300.0) -> None:
        self._client = SandboxClient(nodes, token=token, patience=patience)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sandbox-client", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._wait(self._client.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wait(self._client.__aexit__(kind, error, trace))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, request: RunRequest | str, within: float | None = None) -> RunOutcome:
        """Run a program; see `SandboxClient.run`."""
        return self._wait(self._client.run(request, within))

    def run_many(self, requests: Iterable[RunRequest | str]) -> list[RunOutcome]:
        """Run many programs at once, and return their outcomes in the order of the requests."""

        async def together() -> list[RunOutcome]:
            return await asyncio.gather(*(self._client.run(request) for request in requests))

        return self._wait(together())

    def stream(self, request: RunRequest | str, within: float | None = None) -> Iterator[OutputText | RunOutcome]:
        """Run a program; yields what it prints while it runs, and last its outcome; see `SandboxClient.stream`."""
        items = self._client.stream(request, within)
        try:
            while (item := self._wait(_next(items))) is not None:
                yield item
        finally:
            self._wait(items.aclose())

    def open_session(self, request: SessionRequest | None = None) -> SyncSession:
        """Open a stateful interpreter on one of the nodes."""
        return SyncSession(self._wait(self._client.open_session(request)), self)

    def list_sessions(self) -> list[SessionInfo]:
        """List the sessions that the client's token has open; see `SandboxClient.list_sessions`."""
        return self._wait(self._client.list_sessions())

    def attach_session(self, session: SessionInfo) -> SyncSession:
        """Return a session that is open already, as `list_sessions` describes it."""
        return SyncSession(self._client.attach_session(session), self)

    def _wait(self, doing: Coroutine[object, object, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(doing, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # an interrupt here must end the call there
            raise


async def _next(items: AsyncGenerator[T, None]) -> T | None:
    return await anext(items, None)


class SyncSession:
    """Keeps an interpreter alive on a remote node; see `RemoteSession`."""

    def __init__(self, session: RemoteSession, client: SyncSandboxClient) -> None:
        self._session, self._client = session, client

    @property
    def id(self) -> str:
        """Return its id on the node where it is now."""
        return self._session.id

    def run(self, cell: Cell | str, within: float | None = None) -> CellOutcome:
        """Run a cell."""
        return self._client._wait(self._session.run(cell, within))

    def rollback(self, checkpoint: int | None = None) -> int:
        """Go back to a checkpoint, and return where the session is now."""
        return self._client._wait(self._session.rollback(checkpoint))

    def put(self, path: str, content: bytes) -> None:
        """Put a file into the session's folder."""
        self._client._wait(self._session.put(path, content))

    def fetch(self, path: str) -> bytes:
        """Return a file of the session."""
        return self._client._wait(self._session.fetch(path))

    def fetch_all(self, *paths: str) -> Mapping[str, bytes]:
        """Return files of the session by their paths; see `RemoteSession.fetch_all`."""
        return self._client._wait(self._session.fetch_all(*paths))

    def list_files(self) -> FileList:
        """List the files below the session's working folder."""
        return self._client._wait(self._session.list_files())

    def close(self) -> None:
        """End the session."""
        self._client._wait(self._session.close())

"""The server: a few addresses, all to be read, none to be written to; plain ASGI.

    /                      the page, with /app.js, /app.css and /icon.svg
    /api/overview          runs, curves, evaluations
    /api/list?…            one page of a list: see `query`
    /api/trajectory?id=…   one trajectory, its edits and its group
    /api/next-edit?id=…&…  the next trajectory of a list that has an edit
    /api/tokens?id=…       its tokens
    /export?…              a list's trajectories as one self-contained page

It answers only requests that name a loopback host: a page elsewhere could otherwise point a name of its own at this
machine and read along. The page itself may load nothing but what this server gives it, run no other script, and make no
markup out of text (see `POLICY`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from threading import Thread
from time import monotonic
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from cleaner_rl.trajectory.store import StoreError
from cleaner_rl.view.assets import asset
from cleaner_rl.view.library import Library, UnknownTrajectoryError
from cleaner_rl.view.page import page_of
from cleaner_rl.view.query import BadQueryError

Scope = Mapping[str, Any]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]

LOOPBACK = {"127.0.0.1", "localhost", "::1"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}
FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/app.css": ("app.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
JSON = "application/json; charset=utf-8"
REFRESH = 5.0
"""Seconds after which an overview looks for new files."""
PATIENCE = 0.5
"""Seconds that it waits for them to be indexed; then it shows what there is."""


class Application:
    """Answers requests about one library."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._looked = monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """ASGI."""
        if scope["type"] != "http":
            return
        status, kind, body, further = await self._answer(scope)
        headers = {**HEADERS, "content-type": kind, "content-length": str(len(body)), **further}
        encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status.value, "headers": encoded})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    async def _answer(self, scope: Scope) -> tuple[HTTPStatus, str, bytes, Mapping[str, str]]:
        path = scope["path"]
        if not is_local(scope):
            return _problem(HTTPStatus.FORBIDDEN, "this server answers to 127.0.0.1 and localhost alone")
        if scope["method"] not in ("GET", "HEAD"):
            return _problem(HTTPStatus.METHOD_NOT_ALLOWED, "there is nothing to change here: everything is read-only")
        if path in FILES:
            name, kind = FILES[path]
            return HTTPStatus.OK, kind, asset(name), {}
        parameters = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        try:
            if path == "/export":
                page = (await asyncio.to_thread(page_of, self._library, parameters)).page
                attached = {"content-disposition": 'attachment; filename="trajectories.html"'}
                return HTTPStatus.OK, "text/html; charset=utf-8", page, attached
            answer = await asyncio.to_thread(self._ask, path, parameters)
        except BadQueryError as error:
            return _problem(HTTPStatus.BAD_REQUEST, str(error))
        except UnknownTrajectoryError as error:
            return _problem(HTTPStatus.NOT_FOUND, str(error.args[0]))
        except (StoreError, OSError) as error:
            return _problem(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))
        if answer is None:
            return _problem(HTTPStatus.NOT_FOUND, f"there is nothing at {path}")
        return HTTPStatus.OK, JSON, _encoded(answer), {}

    def _ask(self, path: str, parameters: Mapping[str, str]) -> Mapping[str, Any] | None:
        library = self._library
        if path == "/api/overview":
            if monotonic() - self._looked > REFRESH:
                self._looked = monotonic()
                looking = Thread(target=library.update, name="index", daemon=True)
                looking.start()
                looking.join(PATIENCE)
            return library.overview()
        if path == "/api/list":
            return library.page(parameters)
        if path == "/api/next-edit":
            others = {name: value for name, value in parameters.items() if name != "id"}
            return library.next_edit(parameters.get("id", ""), others)
        if path == "/api/trajectory":
            return library.trajectory(parameters.get("id", ""))
        if path == "/api/tokens":
            return library.tokens(parameters.get("id", ""))
        return None


def is_local(scope: Scope) -> bool:
    """Return whether a request names a loopback host."""
    host = next((value for name, value in scope["headers"] if name == b"host"), b"").decode("latin-1")
    try:
        return urlsplit(f"//{host}").hostname in LOOPBACK
    except ValueError:  # half an address
        return False


def _problem(status: HTTPStatus, message: str) -> tuple[HTTPStatus, str, bytes, Mapping[str, str]]:
    return status, JSON, _encoded({"problem": message}), {}


def _encoded(answer: Mapping[str, Any]) -> bytes:
    return json.dumps(answer, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode(errors="replace")

"""Who may call, and how much of the node each caller may take.

Tokens come from a TOML file, so that they are in no process list and no log:

    [tokens.trainer]
    token = "a long random string"
    running = 12        # runs at the same time; absent: as many as there are slots
    waiting = 50000     # calls in the queue; absent: the whole queue
    sessions = 32       # open sessions; absent: as many as the node holds

A token is sent as `Authorization: Bearer <token>`, or as the password of basic authentication, because clients that
know no tokens (those of code-judge and SandboxFusion) still take `http://any:<token>@host:port` as their one URL.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import ipaddress
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Protocol

import msgspec

from cleaner_sandbox.service.http import HttpError

SHORTEST_TOKEN = 16
MOST_UNREAD: Final = 134_217_728
"""Bytes of results that a caller's requests hold together because it has not read them; above it, none of its calls
start."""


class Grant(msgspec.Struct, forbid_unknown_fields=True):
    """One entry of the token file."""

    token: str
    running: int | None = None
    waiting: int | None = None
    sessions: int | None = None


class TokenFile(msgspec.Struct, forbid_unknown_fields=True):
    """The token file."""

    tokens: dict[str, Grant]


class Losable(Protocol):
    """A session."""

    @property
    def lost(self) -> str:
        """Why it is gone; empty while it isn't."""


class Tenant:
    """A caller: its quotas, and what it holds of the node right now."""

    def __init__(self, name: str, grant: Grant | None = None) -> None:
        self.name = name
        self.most_running = None if grant is None else grant.running
        self.most_waiting = None if grant is None else grant.waiting
        self.most_sessions = None if grant is None else grant.sessions
        self.running = 0
        self.unread = 0
        self.sessions: set[Losable] = set()
        self._passing = 0

    @property
    def may_run(self) -> bool:
        """Whether it is below its quota of runs, and reads its results."""
        return self.unread < MOST_UNREAD and (self.most_running is None or self.running < self.most_running)

    @contextlib.contextmanager
    def passing_session(self) -> Iterator[None]:
        """Count a session that is being opened, or lives as long as a request. Raises `HttpError` above the quota."""
        # The node ends sessions by itself and tells whoever comes back; those of callers who never do must not add up.
        self.sessions = {session for session in self.sessions if not session.lost}
        if self.most_sessions is not None and len(self.sessions) + self._passing >= self.most_sessions:
            message = "Your token may not have more sessions open; close one."
            raise HttpError(429, "too_many_sessions", message, ((b"retry-after", b"1"),))
        self._passing += 1  # before the first wait: of requests that come together, each sees the others
        try:
            yield
        finally:
            self._passing -= 1


class Tenants:
    """Finds the tenant that sent a request, by its token."""

    def __init__(self, grants: Mapping[str, Grant] | None = None) -> None:
        self.anonymous = None if grants else Tenant("anonymous")
        # Looked up by digest: comparing the tokens themselves would tell by its timing how much of a guess was right.
        self._by_digest = {_digest(grant.token.encode()): Tenant(name, grant) for name, grant in (grants or {}).items()}
        if len(self._by_digest) != len(grants or {}):
            raise ValueError("two entries of the token file have the same token; give each its own")

    def __len__(self) -> int:
        return len(self._by_digest) or 1

    @classmethod
    def read(cls, path: str | None) -> Tenants:
        """Read the tenants of a token file; without a file, everybody is one anonymous tenant."""
        if path is None:
            return cls()
        try:
            entries = msgspec.convert(tomllib.loads(Path(path).read_text()), TokenFile).tokens
        except (OSError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
            raise ValueError(f"the token file {path} can't be used: {error}") from error
        short = [name for name, grant in entries.items() if len(grant.token) < SHORTEST_TOKEN]
        if short or not entries:
            what = f"the token of '{short[0]}' is shorter than {SHORTEST_TOKEN} characters" if short else "it is empty"
            raise ValueError(f"the token file {path} can't be used: {what}")
        return cls(entries)

    def find(self, authorization: bytes | None) -> Tenant | None:
        """Return the tenant that a header names, or None if it names none."""
        if self.anonymous is not None:
            return self.anonymous
        kind, _, value = (authorization or b"").partition(b" ")
        if kind.lower() == b"basic":
            try:
                value = base64.b64decode(value, validate=True).partition(b":")[2]
            except binascii.Error:
                return None
        elif kind.lower() != b"bearer":
            return None
        return self._by_digest.get(_digest(value.strip()))


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def unauthorized() -> HttpError:
    """Return the answer to a request without a valid token."""
    message = "A valid token is needed: send `Authorization: Bearer TOKEN`."
    return HttpError(401, "unauthorized", message, ((b"www-authenticate", b"Bearer, Basic"),))


def refuse_browsers(host: bytes | None, origin: bytes | None, own: str) -> None:
    """Raise `HttpError` for a request that a web page sent, by its headers; `own` is the name that is bound to.

    Whoever opens a page that isn't ours has its scripts on this machine, and with a name of the page's choice that
    leads here (DNS rebinding) their browser even lets it read the answer. A token would stop that.
    """
    if origin is not None and origin != b"http://" + (host or b""):
        raise HttpError(403, "foreign_origin", "A node without tokens answers no web page; start it with a token.")
    if host is not None and not _is_here(host.decode("latin-1"), own):
        message = "A node without tokens answers to localhost, to addresses and to the name that it was bound to."
        raise HttpError(403, "foreign_host", message)


def _is_here(host: str, own: str) -> bool:
    """Whether a Host header is an address, or one of our names: no web page can have chosen it."""
    name = host.rpartition(":")[0] if re.search(r":\d*$", host) else host
    if name.lower() in ("localhost", own.lower()):
        return True
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True

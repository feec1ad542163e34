"""What travels between a node's HTTP service and its client: JSON, decoded and checked in one pass.

These types mirror `requests`, with what HTTP needs beside it: binary stdin under a name of its own (JSON has one kind
of string), limits of which a caller may name only some, how long the caller will wait, and a word for why a fault was
one. Bytes travel as base64.

Limits: text that no UTF-8 can hold (lone surrogates) is replaced on its way out; a request that holds any is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Annotated, Final

import msgspec

from cleaner_sandbox.protocol.limits import Limits
from cleaner_sandbox.protocol.requests import (
    Cell,
    CellOutcome,
    Commit,
    Language,
    RunOutcome,
    RunRequest,
    SessionInfo,
    SessionRequest,
    path_problem,
)
from cleaner_sandbox.protocol.results import RunException, RunResult, RunStatus

BROKEN: Final = "broken"
"""A supervisor, zygote or node died, twice; another node may well answer."""
EXPIRED: Final = "expired"
"""The caller's own deadline passed first."""
OVERLOADED: Final = "overloaded"
"""There was no room to wait in."""
DRAINING: Final = "draining"
"""The node is shutting down and did not start the call."""
UNKNOWN_SESSION: Final = "unknown_session"
"""The node has no such session, and doesn't know that it had one: it may have restarted."""

EXPLANATIONS: Final[Mapping[str, str]] = {
    BROKEN: "The sandbox broke while it ran the program.",
    EXPIRED: "The sandbox did not answer before the caller's deadline.",
    OVERLOADED: "The sandbox had no room for the call.",
    DRAINING: "The sandbox was shutting down.",
}

KeepChars = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]
Amount = Annotated[int, msgspec.Meta(gt=0)]
Measured = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
Count = Annotated[int, msgspec.Meta(ge=0)]
"""What a node measured or counted: never negative and never infinite, whatever a node says."""
CallId = Annotated[str, msgspec.Meta(max_length=1_024)]
"""The caller's name for a call: it is kept as long as the call, and in the log for ever."""


class LimitsAsked(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """The limits that a caller names; the node's defaults hold for the rest."""

    cpu_seconds: Seconds | None = None
    wall_seconds: Seconds | None = None
    memory_mb: Amount | None = None
    processes: Amount | None = None
    disk_mb: Amount | None = None
    files: Amount | None = None
    open_files: Amount | None = None
    output_bytes: Amount | None = None

    def over(self, defaults: Limits) -> Limits:
        """The node's defaults with these in place of theirs. Raises `ValueError` for a limit that isn't positive."""
        named = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}
        return replace(defaults, **named)


# No `gc` for what there can be tens of thousands of: it has no cycles, and to look for some would stop the node.
class RunCall(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """One program to run: the body of `POST /v1/run`, and an item of `POST /v1/runs`."""

    code: str
    id: CallId = ""
    """The caller's name for the call: comes back with the result and is in the log."""
    stdin: str | None = None
    stdin_base64: bytes | None = None
    limits: LimitsAsked | None = None
    environment: str | None = None
    echo_last_expression: bool = False
    seed: int = 0
    files: dict[str, bytes] = {}
    fetch: tuple[str, ...] = ()
    keep_chars: KeepChars | None = None
    within: float | None = None
    """Seconds that the caller will wait, counted from when the node has read the request. In a batch, a call whose time
    is over is answered when its turn comes; the batch's own limit is kept to the moment."""
    language: Language = Language.PYTHON
    keep_displays: bool = True

    @classmethod
    def of(cls, request: RunRequest, within: float | None = None) -> RunCall:
        """The call for a request."""
        text = request.stdin if isinstance(request.stdin, str) else None
        return cls(
            code=request.code,
            id=request.request_id,
            stdin=text,
            stdin_base64=request.stdin if isinstance(request.stdin, bytes) else None,
            limits=None if request.limits is None else LimitsAsked(**asdict(request.limits)),
            environment=request.environment,
            echo_last_expression=request.echo_last_expression,
            seed=request.seed,
            files=dict(request.files),
            fetch=request.fetch,
            keep_chars=request.keep_chars,
            within=within,
            language=request.language,
            keep_displays=request.keep_displays,
        )

    def request(self, defaults: Limits) -> RunRequest:
        """The request for a node with these default limits."""
        return RunRequest(
            code=self.code,
            stdin=self.stdin if self.stdin_base64 is None else self.stdin_base64,
            limits=None if self.limits is None else self.limits.over(defaults),
            environment=self.environment,
            echo_last_expression=self.echo_last_expression,
            seed=self.seed,
            files=self.files,
            fetch=self.fetch,
            keep_chars=self.keep_chars,
            request_id=self.id,
            language=self.language,
            keep_displays=self.keep_displays,
        )


class BatchCall(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Many programs to run: the body of `POST /v1/runs`."""

    calls: list[RunCall]
    within: float | None = None
    """Seconds that the caller will wait for all of them."""


class SessionCall(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A session to open: the body of `POST /v1/sessions`."""

    environment: str | None = None
    limits: LimitsAsked | None = None
    seed: int = 0
    commit: Commit = Commit.ON_SUCCESS
    files: dict[str, bytes] = {}
    keep_chars: KeepChars | None = None
    language: Language = Language.PYTHON
    idle_seconds: Seconds | None = None
    ttl_seconds: Seconds | None = None

    @classmethod
    def of(cls, request: SessionRequest) -> SessionCall:
        """The call for a request."""
        limits = None if request.limits is None else LimitsAsked(**asdict(request.limits))
        files = dict(request.files)
        asked = (request.environment, limits, request.seed, request.commit, files, request.keep_chars)
        return cls(*asked, request.language, request.idle_seconds, request.ttl_seconds)

    def request(self, defaults: Limits) -> SessionRequest:
        """The request for a node with these default limits."""
        limits = None if self.limits is None else self.limits.over(defaults)
        asked = (self.environment, limits, self.seed, self.commit, self.files, self.keep_chars)
        return SessionRequest(*asked, self.language, self.idle_seconds, self.ttl_seconds)


class SessionOpened(msgspec.Struct):
    """The answer to `POST /v1/sessions`."""

    session: str


class SessionsListed(msgspec.Struct):
    """The answer to `GET /v1/sessions`."""

    sessions: list[SessionInfo]


class CellCall(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A cell to run: the body of `POST /v1/sessions/{session}/run`."""

    code: str
    id: CallId = ""
    stdin: str | None = None
    stdin_base64: bytes | None = None
    limits: LimitsAsked | None = None
    echo_last_expression: bool = True
    commit: Commit | None = None
    files: dict[str, bytes] = {}
    fetch: tuple[str, ...] = ()
    within: float | None = None
    keep_displays: bool = True

    @classmethod
    def of(cls, cell: Cell, within: float | None = None) -> CellCall:
        """The call for a cell."""
        return cls(
            code=cell.code,
            id=cell.request_id,
            stdin=cell.stdin if isinstance(cell.stdin, str) else None,
            stdin_base64=cell.stdin if isinstance(cell.stdin, bytes) else None,
            limits=None if cell.limits is None else LimitsAsked(**asdict(cell.limits)),
            echo_last_expression=cell.echo_last_expression,
            commit=cell.commit,
            files=dict(cell.files),
            fetch=cell.fetch,
            within=within,
            keep_displays=cell.keep_displays,
        )

    def cell(self, defaults: Limits) -> Cell:
        """The cell for a node with these default limits."""
        return Cell(
            code=self.code,
            stdin=self.stdin if self.stdin_base64 is None else self.stdin_base64,
            limits=None if self.limits is None else self.limits.over(defaults),
            echo_last_expression=self.echo_last_expression,
            commit=self.commit,
            files=self.files,
            fetch=self.fetch,
            request_id=self.id,
            keep_displays=self.keep_displays,
        )


class RollbackCall(msgspec.Struct, forbid_unknown_fields=True):
    """Where to go back to: the body of `POST /v1/sessions/{session}/rollback`."""

    checkpoint: int | None = None


class RolledBack(msgspec.Struct):
    """Number of the state that the session is at now."""

    checkpoint: int


class Outcome(msgspec.Struct, omit_defaults=True, kw_only=True):
    """How a call ended. Fields that hold nothing are left out, `status` and `id` never are."""

    id: str
    status: RunStatus
    output: str = ""
    stderr: str = ""
    exception: RunException | None = None
    explanation: str = ""
    output_length: Count | None = None
    seconds: Measured | None = None
    versions: Mapping[str, str] = {}
    files: Mapping[str, bytes] = {}
    files_left_out: Count = 0
    cpu_seconds: Measured = 0.0
    wall_seconds: Measured = 0.0
    peak_memory_mb: Measured = 0.0
    exit_code: int | None = None
    signal: int | None = None
    environment: str = ""
    attempts: Amount = 1
    displays: list[Mapping[str, str]] = []
    displays_left_out: Mapping[str, Count] = {}
    fault: str = ""
    """Why a fault is one: `broken`, `expired`, `overloaded` or `draining`."""
    index: int | None = None
    """Place of the call in its batch."""
    committed: bool | None = None
    checkpoint: int | None = None
    not_checkpointable: tuple[str, ...] = ()
    unrepeatable: bool = False
    """These four only of a cell."""

    def __post_init__(self) -> None:
        """Refuse names of files that no run has: a caller may write what it fetched below a folder of its own."""
        for name in self.files:
            if (wrong := path_problem(name)) is not None:
                raise ValueError(f"the file name {name!r} {wrong}")

    @classmethod
    def of(cls, outcome: RunOutcome) -> Outcome:
        """What a node's outcome looks like on the wire."""
        result = outcome.result
        return cls(
            id=outcome.request_id,
            status=result.status,
            output=result.output,
            stderr=result.stderr,
            exception=result.exception,
            explanation=result.explanation,
            output_length=result.output_length,
            seconds=result.seconds,
            versions=result.versions,
            files=outcome.files,
            files_left_out=outcome.files_left_out,
            cpu_seconds=outcome.cpu_seconds,
            wall_seconds=outcome.wall_seconds,
            peak_memory_mb=outcome.peak_memory_mb,
            exit_code=outcome.exit_code,
            signal=outcome.signal,
            environment=outcome.environment,
            attempts=outcome.attempts,
            displays=list(outcome.displays),
            displays_left_out=outcome.displays_left_out,
            fault=BROKEN if result.status is RunStatus.FAULT else "",
        )

    @classmethod
    def of_cell(cls, outcome: CellOutcome) -> Outcome:
        """What a cell's outcome looks like on the wire."""
        wire = cls.of(outcome.run)
        wire.committed, wire.checkpoint = outcome.committed, outcome.checkpoint
        wire.not_checkpointable, wire.unrepeatable = outcome.not_checkpointable, outcome.unrepeatable
        return wire

    @classmethod
    def unrun(cls, call_id: str, reason: str) -> Outcome:
        """A call that was not run, or not to its end, for a reason that is the infrastructure's."""
        return cls(id=call_id, status=RunStatus.FAULT, explanation=EXPLANATIONS[reason], fault=reason)

    def run_outcome(self) -> RunOutcome:
        """The outcome as a node gives it."""
        result = RunResult(
            status=self.status,
            output=self.output,
            stderr=self.stderr,
            exception=self.exception,
            explanation=self.explanation,
            output_length=self.output_length,
            seconds=self.seconds,
            versions=self.versions,
        )
        return RunOutcome(
            result=result,
            files=self.files,
            files_left_out=self.files_left_out,
            cpu_seconds=self.cpu_seconds,
            wall_seconds=self.wall_seconds,
            peak_memory_mb=self.peak_memory_mb,
            exit_code=self.exit_code,
            signal=self.signal,
            environment=self.environment,
            request_id=self.id,
            attempts=self.attempts,
            displays=self.displays,
            displays_left_out=self.displays_left_out,
        )

    def cell_outcome(self) -> CellOutcome:
        """The cell's outcome as a session gives it."""
        return CellOutcome(
            self.run_outcome(), bool(self.committed), self.checkpoint or 0, self.not_checkpointable, self.unrepeatable
        )


class Problem(msgspec.Struct):
    """The body of every answer that isn't a result: a word for programs and a sentence for people."""

    error: str
    message: str


_encoder = msgspec.json.Encoder()


def encode_exactly(value: object) -> bytes:
    """A request as JSON. Raises `UnicodeEncodeError` for what UTF-8 can't hold: replaced, it'd be another program."""
    return _encoder.encode(value)


def encode(value: object) -> bytes:
    """A value as JSON; what UTF-8 can't hold is replaced."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(_encodable(msgspec.to_builtins(value)))


def _encodable(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_encodable(item) for item in value]
    return value

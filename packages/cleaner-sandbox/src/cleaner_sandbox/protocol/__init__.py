"""Requests, outcomes and limits of the sandbox, as plain data.

It needs nothing but the standard library, so that whoever calls a sandbox can import it without a server or a client.
"""

from cleaner_sandbox.protocol.limits import Limits
from cleaner_sandbox.protocol.requests import (
    MADE_ROOM,
    Cell,
    CellOutcome,
    Commit,
    FileList,
    Language,
    OutputStream,
    OutputText,
    RollbackDeclinedError,
    RunOutcome,
    RunRequest,
    SessionInfo,
    SessionLostError,
    SessionRequest,
)
from cleaner_sandbox.protocol.results import RunException, RunResult, RunStatus

__all__ = [
    "MADE_ROOM",
    "Cell",
    "CellOutcome",
    "Commit",
    "FileList",
    "Language",
    "Limits",
    "OutputStream",
    "OutputText",
    "RollbackDeclinedError",
    "RunException",
    "RunOutcome",
    "RunRequest",
    "RunResult",
    "RunStatus",
    "SessionInfo",
    "SessionLostError",
    "SessionRequest",
]

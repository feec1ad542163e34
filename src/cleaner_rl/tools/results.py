"""The outcome of one tool call, and who has to answer for it.

A *failure* is the model's own: its program raised, ran into a limit, crashed, or the call could not be read. A *fault*
is the infrastructure's: nothing may be learnt from it. Every other package asks `Status.blame`; nobody looks for
words in the output, because a program can print any word it likes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Blame(StrEnum):
    """Says who is to blame for a result."""

    NOBODY = "nobody"
    MODEL = "model"
    INFRASTRUCTURE = "infrastructure"


class Status(StrEnum):
    """Says how a call ended: exactly one of these, decided by the tool that ran it."""

    OK = "ok"
    ERROR = "error"
    """The program raised, or exited with a code other than zero."""
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT_LIMIT = "output_limit"
    CRASHED = "crashed"
    """A signal killed the run's own process, whatever the cause."""
    MALFORMED = "malformed"
    """The call could not be read: bad JSON, no closing tag, an unknown tool, a missing argument."""
    REFUSED = "refused"
    """The tool read the call and declined what it asked for."""
    FAULT = "fault"
    """A server, worker or network broke; says nothing about the model."""

    @property
    def blame(self) -> Blame:
        """Return who is to blame for this status."""
        if self is Status.OK:
            return Blame.NOBODY
        return Blame.INFRASTRUCTURE if self is Status.FAULT else Blame.MODEL


@dataclass(frozen=True, slots=True)
class ExceptionInfo:
    """An exception as data: what it was, what it said, and where in the model's own code."""

    type: str
    message: str = ""
    line: int | None = None
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What came back from one call."""

    status: Status
    output: str = ""
    stderr: str = ""
    exception: ExceptionInfo | None = None
    explanation: str = ""
    """One sentence for the model where the output can't say it: which limit, what is malformed, what broke."""
    output_length: int | None = None
    """Characters that the program printed, if the tool kept fewer; None if nothing was cut."""
    seconds: float | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    """Interpreter and libraries that ran the call."""

    @property
    def failed(self) -> bool:
        """Return whether this is the model's failure; a fault is not."""
        return self.status is not Status.OK and self.status.blame is Blame.MODEL  # most are ok

    @property
    def faulty(self) -> bool:
        """Return whether the infrastructure broke."""
        return self.status.blame is Blame.INFRASTRUCTURE

    @property
    def observed(self) -> tuple[Status, str, str, ExceptionInfo | None, str, int | None]:
        """Return what the model can see of it, which two runs of a call must agree on: no durations, no versions."""
        return self.status, self.output, self.stderr, self.exception, self.explanation, self.output_length

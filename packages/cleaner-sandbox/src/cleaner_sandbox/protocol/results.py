"""The result of a run: how it ended, decided by the node, and what it printed and raised.

A status says what happened and nothing about who is to blame: whoever calls a sandbox decides what a status means to
them. `RunStatus.FAULT` is the one that says nothing about the program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class RunStatus(StrEnum):
    """Says how a run ended: exactly one of these, decided by the node from what no program can write."""

    OK = "ok"
    ERROR = "error"
    """The program raised, or exited with a code other than zero."""
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT_LIMIT = "output_limit"
    CRASHED = "crashed"
    """A signal killed the run's own process, whatever the cause."""
    MALFORMED = "malformed"
    """The request holds text that no program can be given, such as invalid Unicode."""
    REFUSED = "refused"
    """The node read the request and declined it, such as a file name outside of the working folder."""
    FAULT = "fault"
    """The node, a slot or the network broke; says nothing about the program."""


@dataclass(frozen=True, slots=True)
class RunException:
    """Holds an exception as data: what it was, what it said, and where in the program."""

    type: str
    message: str = ""
    line: int | None = None
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class RunResult:
    """Holds how a run ended and what it printed."""

    status: RunStatus
    output: str = ""
    stderr: str = ""
    exception: RunException | None = None
    explanation: str = ""
    """One sentence where the output can't say it: which limit, what was refused, what broke."""
    output_length: int | None = None
    """Characters that the program printed, if the node kept fewer; None if nothing was cut."""
    seconds: float | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    """Interpreter and libraries that ran the program."""

    @property
    def observed(self) -> tuple[RunStatus, str, str, RunException | None, str, int | None]:
        """Return what two runs of a program must agree on: no durations, no versions."""
        return self.status, self.output, self.stderr, self.exception, self.explanation, self.output_length


def shorten(text: str, limit: int, full_length: int | None = None) -> str:
    """Cut the middle out of a long text, keep both ends (an exception's line is the last) and say how much is missing.

    `full_length` is the length of the text before an earlier cut.
    """
    whole = len(text) if full_length is None else full_length
    if len(text) <= limit:
        return text if whole == len(text) else f"{text}\n[cut: {len(text)} of {whole} characters shown]"
    head = limit // 2
    tail = limit - head
    note = f"\n[cut: {limit} of {whole} characters shown]\n"
    return text[:head] + note + text[len(text) - tail :]

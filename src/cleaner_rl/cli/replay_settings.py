"""How calls are run again: settings apart from the code that does it, which needs the sandbox installed."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from cleaner_rl.purify.logs.formats import Reading

NO_SANDBOX = "replaying needs the sandbox: pip install 'cleaner-rl[sandbox]'"


class Words(StrEnum):
    """In which words a log's results are compared."""

    EXACT = "exact"
    TRIMMED = "trimmed"


@dataclass(frozen=True, slots=True)
class Replaying:
    """How calls are run again."""

    session: bool | None = None
    """In one interpreter a trajectory, or each call in its own; None: as the trajectory says of itself, or for a log,
    which says nothing, whichever gives what it holds."""
    words: Words = Words.TRIMMED
    echo: bool | None = None
    """Whether the value of a last expression is shown; None: in sessions, as notebooks do."""
    nodes: tuple[str, ...] = ()
    """Addresses of sandbox nodes; none: one of our own."""
    token: str | None = None
    """For these nodes."""
    reading: Reading = field(default_factory=Reading)
    """As the log was read."""
    slots: int = 4

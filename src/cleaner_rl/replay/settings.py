"""Settings of a replay, what it finds for one trajectory, and the errors of a sandbox that can't be used.

They are apart from the code that runs calls, which needs the sandbox installed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from importlib.util import find_spec
from typing import NamedTuple

from cleaner_rl.logs import Reading
from cleaner_rl.purify import ReplayDifference, ReplayFaultError

NOT_REPLAYABLE = "not_replayable"


class TextMatch(StrEnum):
    """How the results of a log are compared."""

    EXACT = "exact"
    """As they are."""
    TRIMMED = "trimmed"
    """Without line breaks at the end, since most tools cut them."""


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """How calls are run again."""

    session: bool | None = None
    """True: all calls of a trajectory run in one interpreter. False: each call runs in its own. None: as the trajectory
    was recorded; a log doesn't say it, so both are tried, first one interpreter per call."""
    text_match: TextMatch = TextMatch.TRIMMED
    echo: bool | None = None
    """Whether the value of a last expression is shown. None: in sessions only, as notebooks do."""
    nodes: tuple[str, ...] = ()
    """Addresses of sandbox nodes. None given: a sandbox is started in this process."""
    token: str | None = None
    """Token for these nodes."""
    reading: Reading = field(default_factory=Reading)
    """How the log was read: which tools run Python, and the format of calls in text."""
    slots: int = 4
    """Trajectories that are replayed side by side."""


class SandboxMissingError(ReplayFaultError):
    """The sandbox's dependencies are not installed."""


class ReplayOutcome(NamedTuple):
    """What the replay of one trajectory found."""

    verdict: str
    """A `ReplayVerdict`, or "not_replayable"."""
    difference: ReplayDifference | None = None
    reason: str = ""
    """Why the trajectory can't be replayed, or how its text contradicts its results."""


def needs_sandbox() -> None:
    """Raise `SandboxMissingError` if the sandbox's dependencies are not installed."""
    if find_spec("aiohttp") is None:
        raise SandboxMissingError("replaying needs the sandbox: pip install 'cleaner-rl[sandbox]'")

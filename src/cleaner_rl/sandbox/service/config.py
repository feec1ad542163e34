"""How a node is served, and what its keeper tells its front."""

from __future__ import annotations

from dataclasses import dataclass

from cleaner_rl.sandbox.config import NodeConfig

BACKLOG = 4096
"""Connections that wait to be accepted: a burst, or the time that a front takes to start again."""
UNUSABLE = 78
"""The front's exit code for settings with which starting again can't help (EX_CONFIG)."""
BROKEN = 75
"""The front's exit code where its slots didn't start, which may pass (EX_TEMPFAIL)."""


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """How a node is served."""

    node: NodeConfig
    most_waiting: int = 65_536
    """Calls in the queue."""
    most_held_mb: int = 2_048
    """Request bodies being answered, together."""
    most_body_mb: int = 64
    """One request body."""
    token_file: str | None = None
    """See `owners`; None: everybody may call. Text, not a `Path`: the keeper hands it on as JSON."""
    log_code: bool = False
    drain_seconds: int = 30
    """How long runs may go on after a request to stop."""

"""Runs model-written Python: many short calls, each in a fresh fork of a preloaded interpreter, and sessions that can
go back.

- `limits`, `requests`: what one call may use, what goes in and what comes out.
- `node`, `config`: the asyncio face. The node gives each call a slot; `verdict` alone decides what its status is.
- `pool`, `zygotes`: the processes of one preload set, kept at their number whatever dies. `preload`, `requirements`,
  `layout`: what they load, where it is installed from, and what of the host's files their runs see.
- `sessions`, `store`, `links`: interpreters that live on from cell to cell, and can go back.
- `tiers`, `seccomp`, `cgroups`: how strongly runs are isolated, and by what. `probes`: what of it works here.
- `inside`: what runs in zygotes, slots, sessions and runs. `signals`: leaving properly when somebody ends us.

A run is *ok* if and only if its own process exits with code 0 within its limits. Whatever the process says of itself is
a description, never a verdict.
"""

from cleaner_rl.sandbox.config import NodeConfig, NodeStatus
from cleaner_rl.sandbox.limits import Limits
from cleaner_rl.sandbox.node import Node
from cleaner_rl.sandbox.preload import BARE, SCIENCE, PreloadSet
from cleaner_rl.sandbox.requests import (
    Cell,
    CellOutcome,
    Commit,
    RollbackDeclinedError,
    RunOutcome,
    RunRequest,
    SessionLostError,
    SessionRequest,
)
from cleaner_rl.sandbox.sessions import Session
from cleaner_rl.sandbox.tiers import Layer, Tier, TierError
from cleaner_rl.sandbox.zygotes import ZygoteError

__all__ = [
    "BARE",
    "SCIENCE",
    "Cell",
    "CellOutcome",
    "Commit",
    "Layer",
    "Limits",
    "Node",
    "NodeConfig",
    "NodeStatus",
    "PreloadSet",
    "RollbackDeclinedError",
    "RunOutcome",
    "RunRequest",
    "Session",
    "SessionLostError",
    "SessionRequest",
    "Tier",
    "TierError",
    "ZygoteError",
]

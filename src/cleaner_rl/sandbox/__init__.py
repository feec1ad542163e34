"""Runs model-written Python: many short calls, each in a fresh fork of a preloaded interpreter, and sessions that can
go back.

- `protocol`: requests, outcomes and limits of a call.
- `node`: a node gives each call a slot, replaces processes that die, and decides the status of a call; sessions are
  interpreters that live on from cell to cell.
- `isolation`: how strongly runs are isolated, and by what.
- `inside`: what runs in zygotes, slots, sessions and runs.
- `service`: a node behind an HTTP address · `client`: who calls it · `on_ray`: nodes on a Ray cluster.
- `mcp`: the sandbox as a server of the Model Context Protocol.
- `start`: `open_sandbox` for a program itself, `serve` and `serve_mcp` for others, `benchmark` to measure the cost of a
  call.
- `processes`: a clean exit on signals.

A run is *ok* if and only if its own process exits with code 0 within its limits. What the process reports about
itself is a description, never a verdict.

Limits: nodes run on Linux. `serve` and the client need the extra `cleaner-rl[sandbox]`, `serve_mcp` needs
`cleaner-rl[mcp]`; the rest needs the core alone.
"""

from cleaner_rl.sandbox.isolation.throwaway import throwaway_command
from cleaner_rl.sandbox.isolation.tiers import Layer, Tier, TierError, choose_tier
from cleaner_rl.sandbox.node.config import NodeConfig, NodeStatus, sessions_held
from cleaner_rl.sandbox.node.node import Node
from cleaner_rl.sandbox.node.preload import BARE, DATA, SCIENCE, PreloadSet
from cleaner_rl.sandbox.node.preview import OutputPreview
from cleaner_rl.sandbox.node.probes import probe
from cleaner_rl.sandbox.node.requirements import RequirementsError, install_set, set_folder
from cleaner_rl.sandbox.node.sessions import Session
from cleaner_rl.sandbox.node.zygotes import ZygoteError
from cleaner_rl.sandbox.on_ray import start_on_ray, stop_on_ray
from cleaner_rl.sandbox.processes import descendants, ended_by_signals
from cleaner_rl.sandbox.protocol import (
    Cell,
    CellOutcome,
    Commit,
    FileList,
    Language,
    Limits,
    OutputStream,
    OutputText,
    RollbackDeclinedError,
    RunOutcome,
    RunRequest,
    SessionInfo,
    SessionLostError,
    SessionRequest,
)
from cleaner_rl.sandbox.protocol.requests import SandboxUnavailableError
from cleaner_rl.sandbox.start import benchmark, open_sandbox, serve, serve_mcp

__all__ = [
    "BARE",
    "DATA",
    "SCIENCE",
    "Cell",
    "CellOutcome",
    "Commit",
    "FileList",
    "Language",
    "Layer",
    "Limits",
    "Node",
    "NodeConfig",
    "NodeStatus",
    "OutputPreview",
    "OutputStream",
    "OutputText",
    "PreloadSet",
    "RequirementsError",
    "RollbackDeclinedError",
    "RunOutcome",
    "RunRequest",
    "SandboxUnavailableError",
    "Session",
    "SessionInfo",
    "SessionLostError",
    "SessionRequest",
    "Tier",
    "TierError",
    "ZygoteError",
    "benchmark",
    "choose_tier",
    "descendants",
    "ended_by_signals",
    "install_set",
    "open_sandbox",
    "probe",
    "serve",
    "serve_mcp",
    "sessions_held",
    "set_folder",
    "start_on_ray",
    "stop_on_ray",
    "throwaway_command",
]

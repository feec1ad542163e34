"""Runs model-written Python: many short calls, each in a fresh fork of a preloaded interpreter, and sessions that can
go back.

- `protocol`: requests, outcomes and limits of a call.
- `node`: a node gives each call a slot, replaces processes that die, and decides the status of a call; sessions are
  interpreters that live on from cell to cell.
- `isolation`: how strongly runs are isolated, and by what.
- `inside`: what runs in zygotes, slots, sessions and runs.
- `service`: a node behind an HTTP address · `client`: who calls it · `on_ray`: nodes on a Ray cluster.
- `mcp`: the sandbox as a server of the Model Context Protocol.
- `start`: `open_sandbox` for a program itself, `serve` and `serve_mcp` for others.
- `check`: harmless attacks on a sandbox, as a command that reports what got through · `cli`: the command
  `cleaner-sandbox`.
- `processes`: a clean exit on signals.

A run is *ok* if and only if its own process exits with code 0 within its limits. What the process reports about
itself is a description, never a verdict.

Limits: nodes run on Linux. `serve` and the client need the extra `cleaner-sandbox[http]`, `serve_mcp` needs
`cleaner-sandbox[mcp]`, the environment `science` needs `cleaner-sandbox[science]`; the rest needs click and pyseccomp.
"""

from cleaner_sandbox.environments import BARE, DATA, SCIENCE, Environment
from cleaner_sandbox.isolation.throwaway import throwaway_command
from cleaner_sandbox.isolation.tiers import REMEDIES, Layer, Tier, TierError, choose_tier, remedy
from cleaner_sandbox.node.built import build_environment, built_environments, environments_folder, find_environments
from cleaner_sandbox.node.config import NodeConfig, NodeStatus, sessions_held
from cleaner_sandbox.node.node import Node
from cleaner_sandbox.node.preview import OutputPreview
from cleaner_sandbox.node.probes import probe
from cleaner_sandbox.node.sessions import Session
from cleaner_sandbox.node.zygotes import ZygoteError
from cleaner_sandbox.on_ray import start_on_ray, stop_on_ray
from cleaner_sandbox.processes import descendants, ended_by_signals
from cleaner_sandbox.protocol import (
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
from cleaner_sandbox.protocol.requests import SandboxUnavailableError
from cleaner_sandbox.protocol.results import RunException, RunResult, RunStatus
from cleaner_sandbox.start import open_sandbox, serve, serve_mcp
from cleaner_sandbox.version import __version__

__all__ = [
    "BARE",
    "DATA",
    "REMEDIES",
    "SCIENCE",
    "Cell",
    "CellOutcome",
    "Commit",
    "Environment",
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
    "RollbackDeclinedError",
    "RunException",
    "RunOutcome",
    "RunRequest",
    "RunResult",
    "RunStatus",
    "SandboxUnavailableError",
    "Session",
    "SessionInfo",
    "SessionLostError",
    "SessionRequest",
    "Tier",
    "TierError",
    "ZygoteError",
    "__version__",
    "build_environment",
    "built_environments",
    "choose_tier",
    "descendants",
    "ended_by_signals",
    "environments_folder",
    "find_environments",
    "open_sandbox",
    "probe",
    "remedy",
    "serve",
    "serve_mcp",
    "sessions_held",
    "start_on_ray",
    "stop_on_ray",
    "throwaway_command",
]

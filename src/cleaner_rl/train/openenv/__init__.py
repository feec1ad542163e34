"""Purifies what OpenEnv captured of an agent that runs its own loop, for a trainer that takes a `TrainingTrace`.

- `sessions`: `CleanerSessionFactory`, a factory of sessions around somebody else's, and what a session gives.
- `traces`: a trace as trajectories with tokens, and trajectories as a trace.
- `groups`: the rows of a group of sessions, for a loop of one's own.

Limits: importing this package loads openenv. The agent owns its loop, so failed calls are repaired in hindsight and
never by SAAR. A call's status is what the harness says by structure: an exit code, a flag, an error field, or a call
that the request's own tools don't know. Where it says nothing of the kind, the turn stays as it was captured.
"""

from cleaner_rl.train.openenv.groups import group_chains
from cleaner_rl.train.openenv.sessions import CaptureConfig, CleanerSession, CleanerSessionFactory, OpenFresh
from cleaner_rl.train.openenv.traces import TraceReader, UnreadableTraceError, write_trace

__all__ = [
    "CaptureConfig",
    "CleanerSession",
    "CleanerSessionFactory",
    "OpenFresh",
    "TraceReader",
    "UnreadableTraceError",
    "group_chains",
    "write_trace",
]

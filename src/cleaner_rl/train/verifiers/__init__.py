"""Purifies the rollouts of a verifiers environment, in its `finalize`, for a trainer that takes its traces.

- `env`: `CleanerEnv`, an environment of verifiers that samples, repairs, compares and selects the rollouts of a task.
- `traces`: one trace as a trajectory with tokens, and a row as a trace.

Limits: importing this package loads verifiers. The harness of an agent runs its own loop, so failed calls are repaired
in hindsight and never by SAAR. A tool message has no status: whether a call failed is judged by its text, as in logs.
prime-rl, which trains on such traces, needs a GPU and has not been tried.
"""

from cleaner_rl.train.verifiers.env import CleanerEnv, CleanerEnvConfig
from cleaner_rl.train.verifiers.traces import TraceReader, UnreadableTraceError, write_row

__all__ = ["CleanerEnv", "CleanerEnvConfig", "TraceReader", "UnreadableTraceError", "write_row"]

"""Replay: run the calls of stored trajectories again, and compare.

- `verification`: `verify` for a store, and `checker` for `logs.purify`. `settings`: how calls are run.
- `replayer`: runs the calls of trajectories in the sandbox. It is loaded when a replay begins, since it needs the
  sandbox's dependencies (`pip install 'cleaner-rl[sandbox]'`).

Limits: Python, and the tools of our own rollouts. Logs that use other tools are reported as not replayable.
"""

from cleaner_rl.replay.settings import (
    ReplayOutcome,
    ReplaySettings,
    SandboxMissingError,
    TextMatch,
)
from cleaner_rl.replay.verification import (
    DifferentTrajectory,
    ReplayCheck,
    ReplayReport,
    checker,
    checker_if_possible,
    verify,
)

__all__ = [
    "DifferentTrajectory",
    "ReplayCheck",
    "ReplayOutcome",
    "ReplayReport",
    "ReplaySettings",
    "SandboxMissingError",
    "TextMatch",
    "checker",
    "checker_if_possible",
    "verify",
]

"""Replay: run the calls of stored trajectories again, and compare.

- `verification`: `verify` for a store; `checker` for `logs.purify`, and `replay_problem` for whether to use it.
  `settings`: how calls are run.
- `replayer`: runs the calls of trajectories in the sandbox. It is loaded when a replay begins, since it needs the
  sandbox's dependencies (`pip install 'cleaner-rl[sandbox]'`).

Limits: Python, and the tools of our own rollouts. Logs that use other tools are reported as not replayable.
"""

from cleaner_rl.replay.settings import ReplaySettings, SandboxMissingError, TextMatch
from cleaner_rl.replay.verification import ReplayCheck, ReplayReport, checker, replay_problem, verify

__all__ = [
    "ReplayCheck",
    "ReplayReport",
    "ReplaySettings",
    "SandboxMissingError",
    "TextMatch",
    "checker",
    "replay_problem",
    "verify",
]

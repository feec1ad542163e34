"""Many replicas as one.

- `scheduler`: the face of a scheduler.
"""

from cleaner_rl.rollout.balance.scheduler import Load, Scheduler

__all__ = ["Load", "Scheduler"]

"""Many replicas as one.

- `scheduler`: the face of a scheduler · `even`: ours, and the lengths that it learns (`lengths`).
"""

from cleaner_rl.rollout.balance.even import EvenPolicy, EvenScheduler
from cleaner_rl.rollout.balance.scheduler import Load, Scheduler

__all__ = ["EvenPolicy", "EvenScheduler", "Load", "Scheduler"]

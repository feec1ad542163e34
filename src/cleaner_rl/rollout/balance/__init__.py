"""Load balancing: many engine replicas as one.

- `scheduler`: the interface of a scheduler, which gets events and says what starts where.
- `even`: our scheduler · `lengths`: its estimate of how long trajectories get.
- `dispatcher`: one engine over the engines of the replicas, under a scheduler.
"""

from cleaner_rl.rollout.balance.dispatcher import Dispatcher, Replica
from cleaner_rl.rollout.balance.even import EvenConfig, EvenScheduler
from cleaner_rl.rollout.balance.scheduler import Scheduler

__all__ = [
    "Dispatcher",
    "EvenConfig",
    "EvenScheduler",
    "Replica",
    "Scheduler",
]

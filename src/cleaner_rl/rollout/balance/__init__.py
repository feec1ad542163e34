"""Many replicas as one.

- `scheduler`: the face of a scheduler, which is told what happens and says what starts where.
- `even`: ours, and the lengths that it learns (`lengths`).
- `dispatcher`: a policy over the replicas' policies under a scheduler · `metrics`: what vLLM says of its load.
"""

from cleaner_rl.rollout.balance.dispatcher import Dispatcher, Replica
from cleaner_rl.rollout.balance.even import EvenPolicy, EvenScheduler
from cleaner_rl.rollout.balance.metrics import Gauge, read_vllm
from cleaner_rl.rollout.balance.scheduler import Load, Scheduler

__all__ = [
    "Dispatcher",
    "EvenPolicy",
    "EvenScheduler",
    "Gauge",
    "Load",
    "Replica",
    "Scheduler",
    "read_vllm",
]

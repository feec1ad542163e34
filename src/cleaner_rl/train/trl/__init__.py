"""Trains on clean trajectories with TRL's `GRPOTrainer`, unmodified.

- `rollouts`: `CleanerRollouts`, which is TRL's `rollout_func`, its reward function and its data sets in one object.
- `serving`: what rollouts are sampled from: the trainer's own model, its vLLM, or a vLLM server.
- `engine`: the trainer's own model, served to rollouts. `colocated`: the same for a vLLM in the trainer's process.
- `checks`: what is refused, in words.

Limits: without vLLM, models that are sharded over processes are refused. vLLM has been tried on a CPU alone, where TRL
can't send weights to a server. TRL computes the advantages from our rewards (it adds 1e-4 to the deviation). Importing
this package loads no engine.
"""

from cleaner_rl.train.recipe.settings import RocSettings
from cleaner_rl.train.trl.checks import TrlRefusedError
from cleaner_rl.train.trl.rollouts import CleanerRollouts

__all__ = ["CleanerRollouts", "RocSettings", "TrlRefusedError"]

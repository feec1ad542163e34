"""Trains on clean trajectories with TRL's `GRPOTrainer`, unmodified.

- `rollouts`: `CleanerRollouts`, which is TRL's `rollout_func`, its reward function and its data sets in one object.
- `engine`: the trainer's own model, served to rollouts.
- `checks`: what is refused, in words.
- `recording`: the store and the metrics of a run, which `cleaner view` opens.

Limits: the trainer's own model samples; TRL's vLLM is refused, and so are models that are sharded over processes. TRL
computes the advantages from our rewards (it adds 1e-4 to the deviation). Importing this package loads no engine.
"""

from cleaner_rl.train.recipe.settings import RocSettings
from cleaner_rl.train.trl.checks import TrlRefusedError
from cleaner_rl.train.trl.rollouts import CleanerRollouts

__all__ = ["CleanerRollouts", "RocSettings", "TrlRefusedError"]

"""The recovery benchmark: failures put into a model's mouth, and how often it gets over them unaided.

- `failures`: what goes wrong, made from the task by a seed, the same for every model.
- `writing`: a failure as a turn in the model's call format.
- `injected`: a model whose first turn is such a failure.
- `scoring`: what the model made of it, by kind of failure.

It shows what a score can't: whether training on clean trajectories cost a model the skill to recover from its errors.
"""

from cleaner_rl.evaluate.recovery.failures import KINDS, Failure, failures
from cleaner_rl.evaluate.recovery.injected import with_failure
from cleaner_rl.evaluate.recovery.scoring import Recovered, recovered, score_recovery
from cleaner_rl.evaluate.recovery.writing import unwritable, written

__all__ = [
    "KINDS",
    "Failure",
    "Recovered",
    "failures",
    "recovered",
    "score_recovery",
    "unwritable",
    "with_failure",
    "written",
]

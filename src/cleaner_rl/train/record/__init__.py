"""Records what a run samples and what is trained on, for every trainer: metrics and a store that `cleaner view` opens.

- `figures`: the metrics, computed from trajectories.
- `folder`: the run's folder, with its store and its file of metrics.
- `step`: the groups of a step, and the errors of a step that can't succeed.
"""

from cleaner_rl.train.record.figures import figures_of, step_figures
from cleaner_rl.train.record.folder import ABANDONED, METRICS, RunFolder
from cleaner_rl.train.record.step import (
    NothingToLearnError,
    StepConfig,
    StepRecord,
    TooFewRowsError,
    TooManyFaultsError,
)

__all__ = [
    "ABANDONED",
    "METRICS",
    "NothingToLearnError",
    "RunFolder",
    "StepConfig",
    "StepRecord",
    "TooFewRowsError",
    "TooManyFaultsError",
    "figures_of",
    "step_figures",
]

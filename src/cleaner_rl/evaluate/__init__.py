"""How good a model is, and how sure one can be of it.

- `passing`, `bootstrap`, `paired`: pass@k, intervals over problems, and two runs compared problem by problem.
- `measures`: what one trajectory says · `scores`: many of them to figures · `results`: the figures as plain data.
- `running`: a model over sets of problems, with repair and without · `cache`: what is finished is not done again.
- `comparison`: two evaluations · `recovery`: how a model gets over failures · `report`: JSON, Markdown and a page.

The figure to claim is the one with repair off: what the model does alone.

Limits: a score is of a model with its prompt, its tool and its budgets; the settings stand beside it.
"""

from cleaner_rl.evaluate.bootstrap import Estimate, Figure, estimates, mean
from cleaner_rl.evaluate.comparison import Comparison, compare
from cleaner_rl.evaluate.measures import Sample, measure
from cleaner_rl.evaluate.paired import Difference, difference, sign_flip
from cleaner_rl.evaluate.passing import ks, pass_at_k
from cleaner_rl.evaluate.results import (
    Arm,
    Evaluation,
    Rate,
    RecoveryResult,
    Repair,
    ResultsError,
    SetResult,
    read_results,
)
from cleaner_rl.evaluate.scores import score, score_set

__all__ = [
    "Arm",
    "Comparison",
    "Difference",
    "Estimate",
    "Evaluation",
    "Figure",
    "Rate",
    "RecoveryResult",
    "Repair",
    "ResultsError",
    "Sample",
    "SetResult",
    "compare",
    "difference",
    "estimates",
    "ks",
    "mean",
    "measure",
    "pass_at_k",
    "read_results",
    "score",
    "score_set",
    "sign_flip",
]

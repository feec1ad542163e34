"""Evaluation: how good a model is, with confidence intervals.

- `run`: `evaluate`, a model over sets of problems, with repair and without · `cache`: what is finished is kept.
- `measures`: figures of one trajectory · `scores`: pass@k and other figures · `results`: the figures as plain data.
- `bootstrap`, `paired`: intervals over problems, and two runs compared problem by problem.
- `regrading`: stored rollouts, graded again · `majority`: maj@k.
- `comparison`: two evaluations · `recovery`: how a model recovers from failures · `report`: JSON, Markdown and a page.
- `training_report`: what a training run did, step by step.

Report the figure with repair off: it is what the model does by itself.

Limits: a score is of a model with its prompt, its tool and its budgets; the settings are reported beside it.
"""

from cleaner_rl.evaluate.bootstrap import Estimate, Figure, estimates, mean
from cleaner_rl.evaluate.comparison import Comparison, compare
from cleaner_rl.evaluate.grade_changes import GradeChange, Regraded
from cleaner_rl.evaluate.majority import maj_at_k
from cleaner_rl.evaluate.measures import Sample, measure
from cleaner_rl.evaluate.paired import Difference, difference, sign_flip
from cleaner_rl.evaluate.rates import Rate
from cleaner_rl.evaluate.recovery import unwritable
from cleaner_rl.evaluate.regrading import regrade
from cleaner_rl.evaluate.report import comparison_text, regraded_text, summary_text, write_comparison, write_report
from cleaner_rl.evaluate.results import (
    Evaluation,
    RecoveryResult,
    Repair,
    ResultsError,
    RunScore,
    SetResult,
    read_results,
)
from cleaner_rl.evaluate.run import AnotherModelError, EvalPlan, RunMode, evaluate, load_plan, refuse_another_model
from cleaner_rl.evaluate.scores import ks, pass_at_k, score, score_set
from cleaner_rl.evaluate.training_report import train_report

__all__ = [
    "AnotherModelError",
    "Comparison",
    "Difference",
    "Estimate",
    "EvalPlan",
    "Evaluation",
    "Figure",
    "GradeChange",
    "Rate",
    "RecoveryResult",
    "Regraded",
    "Repair",
    "ResultsError",
    "RunMode",
    "RunScore",
    "Sample",
    "SetResult",
    "compare",
    "comparison_text",
    "difference",
    "estimates",
    "evaluate",
    "ks",
    "load_plan",
    "maj_at_k",
    "mean",
    "measure",
    "pass_at_k",
    "read_results",
    "refuse_another_model",
    "regrade",
    "regraded_text",
    "score",
    "score_set",
    "sign_flip",
    "summary_text",
    "train_report",
    "unwritable",
    "write_comparison",
    "write_report",
]

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

from cleaner_rl.evaluate.bootstrap import mean
from cleaner_rl.evaluate.comparison import compare
from cleaner_rl.evaluate.grade_changes import Regraded
from cleaner_rl.evaluate.majority import maj_at_k
from cleaner_rl.evaluate.measures import measure
from cleaner_rl.evaluate.paired import difference
from cleaner_rl.evaluate.rates import Rate
from cleaner_rl.evaluate.recovery import unwritable
from cleaner_rl.evaluate.regrading import regrade
from cleaner_rl.evaluate.report import comparison_text, regraded_text, summary_text, write_comparison
from cleaner_rl.evaluate.results import Evaluation, Repair, ResultsError, read_results
from cleaner_rl.evaluate.run import evaluate, load_plan, refuse_another_model
from cleaner_rl.evaluate.scores import pass_at_k
from cleaner_rl.evaluate.training_report import train_report

__all__ = [
    "Evaluation",
    "Rate",
    "Regraded",
    "Repair",
    "ResultsError",
    "compare",
    "comparison_text",
    "difference",
    "evaluate",
    "load_plan",
    "maj_at_k",
    "mean",
    "measure",
    "pass_at_k",
    "read_results",
    "refuse_another_model",
    "regrade",
    "regraded_text",
    "summary_text",
    "train_report",
    "unwritable",
    "write_comparison",
]

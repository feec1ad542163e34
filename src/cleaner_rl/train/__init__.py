"""Trains a model by a recipe on an unmodified verl, or with TRL.

`train` runs a recipe, `check` checks it and `run_preflight` tries two steps of it; `cleaner train` is a thin command
over them. These packages do the work:

- `recipe` describes a run as typed settings and reads it from YAML.
- `launch` starts, resumes and ends the run: checks, cold start, stages, sandbox node, verl's process.
- `preflight` tries a recipe on this machine and says what speaks against the whole run.
- `verl` holds verl's configuration, the classes that run inside verl's processes, and what lets verl run on a CPU.
- `trl` is the adapter to TRL, which needs no recipe.

`rows` turns the trajectories of a group into the rows that any trainer takes, and `record` stores them and computes the
metrics.

Limits: GRPO-style training of text models. docs/verification.md says what ran on which machine. Importing this package
loads no engine; the modules that verl's processes load do.
"""

from cleaner_rl.train.launch.evaluation import RunEvaluation, run_evaluation
from cleaner_rl.train.launch.start import TrainingFailedError, check, train
from cleaner_rl.train.preflight import Verdict, run_preflight
from cleaner_rl.train.recipe.enums import Method
from cleaner_rl.train.recipe.load import read_recipe, to_recipe, to_values
from cleaner_rl.train.recipe.settings import Recipe, RecipeError, part_folders, run_folder
from cleaner_rl.train.verl.overrides import as_arguments

__all__ = [
    "Method",
    "Recipe",
    "RecipeError",
    "RunEvaluation",
    "TrainingFailedError",
    "Verdict",
    "as_arguments",
    "check",
    "part_folders",
    "read_recipe",
    "run_evaluation",
    "run_folder",
    "run_preflight",
    "to_recipe",
    "to_values",
    "train",
]

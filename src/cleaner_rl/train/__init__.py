"""Trains a model by a recipe on an unmodified verl, or with TRL.

`train` runs a recipe and `check` checks it; `cleaner train` is a thin command over both. These packages do the work:

- `recipe` describes a run as typed settings and reads it from YAML.
- `launch` starts, resumes and ends the run: checks, cold start, stages, sandbox node, verl's process.
- `verl` holds verl's configuration and the classes that run inside verl's processes.
- `cpu` lets verl run on machines without an accelerator.
- `trl` is the adapter to TRL, which needs no recipe.

`rows` turns the trajectories of a group into the rows that any trainer takes.

Limits: GRPO-style training of text models. docs/verification.md says what ran on which machine. Importing this package
loads no engine; the modules that verl's processes load do.
"""

from cleaner_rl.train.launch.rewind import checkpointed, set_aside
from cleaner_rl.train.launch.start import RecipeCheck, TrainingFailedError, check, parts, train
from cleaner_rl.train.recipe.enums import Method
from cleaner_rl.train.recipe.load import read_recipe, to_recipe, to_values
from cleaner_rl.train.recipe.settings import Recipe, RecipeError, part_folders, run_folder
from cleaner_rl.train.verl.overrides import as_arguments, environment, overrides

__all__ = [
    "Method",
    "Recipe",
    "RecipeCheck",
    "RecipeError",
    "TrainingFailedError",
    "as_arguments",
    "check",
    "checkpointed",
    "environment",
    "overrides",
    "part_folders",
    "parts",
    "read_recipe",
    "run_folder",
    "set_aside",
    "to_recipe",
    "to_values",
    "train",
]

"""Training on an unmodified verl: the loop, the purifier and the resampler as its plugin; recipes; verl on processors.

- `recipe`, with `choices`, `reading`: a run as typed data, from YAML · `overrides`: the same as verl's settings ·
  `plan`, `folders`: what all processes of a run read, and where · `start`, with `checks`, `resuming`,
  `abandoned`, `processes`: the checks, what goes on and what is set aside, the sandbox, then verl.
- in verl's processes: `plugin` (what verl loads) · `agent`, `rolls`, `workshop`, `policy`, `outputs` (rollouts) ·
  `manager`, `sampler`, `groups` (groups, faults, metrics, the store) · `router` (which replica) · `active` (are all
  of them there?).
- `cold_start`, `demonstrations`, `stages`: before the run, and a run in parts.
- `cpu`: a platform for machines without an accelerator · `seams`: every place at which verl is touched.

Limits: GRPO and its kin on text models. What ran on which machine, `docs/train.md` says. Importing this room loads no
engine; the modules that verl's processes load do.
"""

from cleaner_rl.train.choices import Method
from cleaner_rl.train.folders import run_folder
from cleaner_rl.train.overrides import as_arguments, environment, overrides
from cleaner_rl.train.reading import read_recipe, to_recipe, to_values
from cleaner_rl.train.recipe import Recipe, RecipeError
from cleaner_rl.train.start import TrainingFailedError, parts, train

__all__ = [
    "Method",
    "Recipe",
    "RecipeError",
    "TrainingFailedError",
    "as_arguments",
    "environment",
    "overrides",
    "parts",
    "read_recipe",
    "run_folder",
    "to_recipe",
    "to_values",
    "train",
]

"""A run goes on in its folder by the recipe that it was begun with, but for what doesn't change what is learnt.

verl takes up whatever checkpoint lies in the folder. A baseline that shares the name of the run before it would go on
from that run's weights, and be compared with them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cleaner_rl.train.cold_start import cold_start_folder
from cleaner_rl.train.folders import part_folders
from cleaner_rl.train.overrides import flat
from cleaner_rl.train.plan import plan_file
from cleaner_rl.train.reading import to_recipe, to_values
from cleaner_rl.train.recipe import Recipe, RecipeError
from cleaner_rl.train.stages import stage_recipe

MAY_CHANGE = (
    "run.",  # for how long, where to, how often it is saved and evaluated
    "sandbox.",
    "device.",
    "faults.",
    "batch.micro_batch",
    "verl.trainer.",
    "verl.ray_kwargs.",
)
"""How keys begin that a run may go on with changed …"""
STAYS = ("run.evaluation_temperature", "run.evaluation_top_p")
"""… but for these: the report compares the evaluations of a run with each other."""


def check_folder(recipe: Recipe) -> None:
    """Raise `RecipeError` if a run of another recipe lives in the run's folder."""
    folders = part_folders(recipe)
    made = [*folders, *([cold_start_folder(recipe)] if recipe.cold_start is not None else [])]
    stages = [stage_recipe(recipe, stage, recipe.model.path, recipe.tasks.train) for stage in recipe.stages]
    for part, folder in zip(stages or [recipe], folders, strict=True):
        file = plan_file(folder)
        if file.exists() and (found := changes(_begun(file, part, made), part)):
            raise RecipeError(
                f"{folder} holds a run that was begun with another recipe ({'; '.join(found)}), and this one would go "
                "on from its weights: give it a folder of its own with --set name=…. To go on with the changed recipe "
                f"all the same, remove {file}"
            )


def changes(before: Recipe, now: Recipe) -> list[str]:
    """What is another in two recipes, in words, without what may change on the way."""
    old, new = _settings(before), _settings(now)
    return [
        f"{key} was {json.dumps(old.get(key))}, is {json.dumps(new.get(key))}"
        for key in {**old, **new}
        if (key in STAYS or not key.startswith(MAY_CHANGE)) and old.get(key) != new.get(key)
    ]


def _begun(file: Path, part: Recipe, made: Sequence[Path]) -> Recipe:
    """The recipe of a plan; where an earlier part gave its model or tasks, with those of `part`."""
    try:
        recipe = to_recipe(json.loads(file.read_text(encoding="utf-8"))["recipe"])
    except RecipeError as error:
        raise RecipeError(f"{file} is of another version of this package: {error}") from None

    def ours(*paths: str) -> bool:
        return all(any(Path(path).is_relative_to(folder) for folder in made) for path in paths)

    model = part.model.path if ours(recipe.model.path) else recipe.model.path
    train = part.tasks.train if ours(*recipe.tasks.train) else recipe.tasks.train
    return replace(recipe, model=replace(recipe.model, path=model), tasks=replace(recipe.tasks, train=train))


def _settings(recipe: Recipe) -> dict[str, object]:
    """All of a recipe's settings by their dotted keys, verl's under one spelling."""
    values = json.loads(json.dumps(to_values(recipe)))
    verl = flat(values.pop("verl"))
    return {**flat(values), **{f"verl.{key.removeprefix('+')}": value for key, value in verl.items()}}

"""Checks that a run resumes with the recipe that it began with, but for settings that don't change what is learned.

verl resumes from whatever checkpoint is in the folder. A baseline with the name of an earlier run would continue from
that run's weights and be compared with them. Settings that a plan lacks, because they are newer, count as their
defaults.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from cleaner_rl.train.launch.cold_start import cold_start_folder
from cleaner_rl.train.launch.rewind import checkpointed
from cleaner_rl.train.recipe.load import to_recipe, to_values
from cleaner_rl.train.recipe.settings import Recipe, RecipeError, part_folders, run_folder
from cleaner_rl.train.recipe.stages import stage_recipe
from cleaner_rl.train.verl.overrides import overrides
from cleaner_rl.train.verl.plan import plan_file
from cleaner_rl.train.verl.settings import ACTOR, DTYPE, KEYS, OFFLOAD, REF, ROLLOUT, devices_of, flat, own_settings

MAY_CHANGE = (
    "run.",  # for how long, and where to
    "sandbox.",
    "faults.",
    "verl.trainer.",  # how often it is saved and evaluated, on how many machines
    "verl.ray_kwargs.",
    *(
        f"verl.{key}"
        for key in (
            *(key for key in KEYS.values() if key != DTYPE),
            OFFLOAD,
            f"{ACTOR}.fsdp_config.optimizer_offload",
            f"{REF}.fsdp_config.param_offload",
            f"{REF}.log_prob_micro_batch_size_per_gpu",
            f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu",
            f"{ROLLOUT}.gpu_memory_utilization",
            f"{ROLLOUT}.val_kwargs.n",
        )
    ),
)
"""Prefixes of keys that may change when a run resumes."""
DONE = "done"
"""The file in the folder of a finished stage, which isn't resumed."""
_SHARD = re.compile(r"model_world_size_(\d+)_rank_\d+\.pt")
"""verl's name for a device's part of a checkpoint."""


def check_folder(recipe: Recipe) -> None:
    """Raise `RecipeError` if the run's folder holds a run of another recipe, or of another number of devices."""
    folders = part_folders(recipe)
    made = [*folders, *([cold_start_folder(recipe)] if recipe.cold_start is not None else [])]
    stages = [stage_recipe(recipe, stage, recipe.model.path, recipe.tasks.train) for stage in recipe.stages]
    for part, folder in zip(stages or [recipe], folders, strict=True):
        file = plan_file(folder)
        if file.exists() and (found := changes(_begun(file, part, made), part)):
            raise RecipeError(
                f"{folder} holds a run of another recipe ({'; '.join(found)}), and this run would resume from its "
                "weights: give it its own folder with --set name=…. To resume with the changed recipe all the same, "
                f"remove {file}"
            )
        if not (folder / DONE).exists():
            _check_devices(part, folder)


def _check_devices(recipe: Recipe, folder: Path) -> None:
    """Raise `RecipeError` if the checkpoint was saved on another number of devices: verl can't load it then."""
    step, devices = checkpointed(folder), devices_of(recipe).count
    actor = folder / "checkpoints" / f"global_step_{step}" / "actor"
    saved = {int(found[1]) for file in actor.glob("model_*.pt") if (found := _SHARD.match(file.name))}
    if saved and devices not in saved:
        raise RecipeError(
            f"the checkpoint of step {step} in {folder} was saved on {max(saved)} devices, and verl can't load it on "
            f"{devices} (verl.trainer.nnodes x verl.trainer.n_gpus_per_node): resume on {max(saved)}, or begin a new "
            f"run with its model: --set name=… --set model.path={actor / 'huggingface'}"
        )


def changes(before: Recipe, now: Recipe) -> list[str]:
    """Name the settings that differ between two recipes, without those that may change when a run resumes."""
    own = {*own_settings(before), *own_settings(now)}
    old, new = _settings(before, own), _settings(now, own)
    return [
        f"{key} was {json.dumps(old.get(key))}, is {json.dumps(new.get(key))}"
        for key in {**old, **new}
        if not key.startswith(MAY_CHANGE) and old.get(key) != new.get(key)
    ]


def _begun(file: Path, part: Recipe, made: Sequence[Path]) -> Recipe:
    """Return the recipe of a plan, with the model and tasks of `part` where an earlier part of the run made them."""
    try:
        recipe = to_recipe(json.loads(file.read_text(encoding="utf-8"))["recipe"])
    except RecipeError as error:
        raise RecipeError(
            f"{file} was written by another version of cleaner-rl and can't be read: {error}; give this run its own "
            "folder with --set name=…"
        ) from None

    def ours(*paths: str) -> bool:
        return all(any(Path(path).is_relative_to(folder) for folder in made) for path in paths)

    model = part.model.path if ours(recipe.model.path) else recipe.model.path
    train = part.tasks.train if ours(*recipe.tasks.train) else recipe.tasks.train
    return replace(recipe, model=replace(recipe.model, path=model), tasks=replace(recipe.tasks, train=train))


def _settings(recipe: Recipe, own: Collection[str]) -> dict[str, object]:
    """Return the settings of a recipe by dotted keys; those of verl's that are named, whoever set them."""
    values = json.loads(json.dumps(to_values(recipe)))
    del values["verl"]
    composed = {key.removeprefix("+"): value for key, value in overrides(recipe, run_folder(recipe)).items()}
    return {**flat(values), **{f"verl.{key}": composed.get(key) for key in sorted(own)}}

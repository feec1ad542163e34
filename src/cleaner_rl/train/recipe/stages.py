"""Cuts a recipe into stages: each begins with the model of the one before, on tasks within its pass rates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from cleaner_rl.tasks import read_verl
from cleaner_rl.train.recipe.settings import Recipe, StageSettings
from cleaner_rl.trajectory import Phase
from cleaner_rl.trajectory.store import read


class PassRate(NamedTuple):
    """How often a model solved a task."""

    passed: int
    tries: int


def stage_recipe(recipe: Recipe, stage: StageSettings, model: str, train: Sequence[str]) -> Recipe:
    """Return one stage as a recipe, in a folder below the run's, which begins with `model`."""
    budget = recipe.budget
    return replace(
        recipe,
        name=f"{recipe.name}-{stage.name}",
        stages=[],
        cold_start=None,
        model=replace(recipe.model, path=model),
        tasks=replace(recipe.tasks, train=list(train)),
        budget=replace(budget, response_tokens=stage.response_tokens or budget.response_tokens),
        run=replace(recipe.run, steps=stage.steps, folder=str(Path(recipe.run.folder) / recipe.name)),
    )


def pass_rates(store: Path) -> dict[str, PassRate]:
    """Return how often each task was solved in a stage, over all sampled rollouts; rescues are not counted."""
    solved: dict[str, list[bool]] = defaultdict(list)
    for trajectory in read(store, Phase.TRAINING):
        if trajectory.usable and trajectory.success is not None and trajectory.info.rescued is None:
            solved[trajectory.key.task].append(trajectory.success)
    return {task: PassRate(sum(each), len(each)) for task, each in solved.items()}


def filtered(files: Sequence[str], rates: dict[str, PassRate], stage: StageSettings, folder: Path) -> list[str]:
    """Write files with the tasks whose pass rate is within the stage's bounds; a task without a rate stays."""
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for number, file in enumerate(files):
        keep = [_within(rates.get(task.id), stage) for task in read_verl(file)]
        path = folder / f"train-{number}.parquet"
        pq.write_table(pq.read_table(file).filter(keep), path)
        written.append(str(path))
    return written


def _within(rate: PassRate | None, stage: StageSettings) -> bool:
    return rate is None or stage.min_pass_rate <= rate.passed / rate.tries <= stage.max_pass_rate

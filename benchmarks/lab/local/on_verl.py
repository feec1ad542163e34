"""The same runs on verl, to confirm what the trainer in one process shows: few of them, because each takes minutes.

`cleaner train` trains the run's recipe. Its last model is then measured as that of every other run. verl offers no
learning rate that falls in a line: here it falls by a cosine, from the first step on.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.lab.environments import lab_folder
from benchmarks.lab.local.beyond import Beyond
from benchmarks.lab.local.methods import METHODS
from benchmarks.lab.local.runs import WorldRun, measured, record
from benchmarks.lab.reading import models, read_lines
from cleaner_rl.train import Recipe, to_values
from cleaner_rl.train.launch.rewind import checkpointed
from cleaner_rl.train.recipe.settings import run_folder

FALLING = {"actor_rollout_ref.actor.optim.lr_scheduler_type": "cosine"}
MOST_SECONDS = 3_600.0
"""Of one run."""
ROOT = Path(__file__).parents[3]


def recipe_on_verl(run: WorldRun, steps: int = 0) -> Recipe:
    """Return a run's recipe for verl; a method that no recipe can say is refused."""
    if METHODS[run.method].beyond != Beyond():
        raise ValueError(f"{run.method} has settings that no recipe for verl can say")
    recipe = run.recipe(steps)
    return replace(
        recipe, verl={**recipe.verl, **FALLING}, run=replace(recipe.run, folder=str(lab_folder() / "worlds-verl"))
    )


def finished_on_verl(run: WorldRun, say: Callable[[str], None], steps: int = 0) -> dict[str, Any]:
    """Run it, or go on with it, and return what is kept of it. Its folder is removed."""
    recipe = recipe_on_verl(run, steps)
    folder = run_folder(recipe)
    folder.mkdir(parents=True, exist_ok=True)
    if checkpointed(folder) < recipe.run.steps:
        say(f"on verl, from step {checkpointed(folder)} on; verl's log is in {folder}")
        _train(recipe, folder)
    figures = asyncio.run(_measured(run, recipe, models(folder)[recipe.run.steps]))
    steps_of = [line["metrics"] for line in read_lines(folder / "metrics.jsonl")]
    costs = {"sampled_tokens": int(sum(each["sampled_tokens"] for each in steps_of))}
    found = record(run, folder, recipe.run.steps, figures, costs)
    shutil.rmtree(folder)
    return found


def _train(recipe: Recipe, folder: Path) -> None:
    path = folder / "recipe.yaml"
    path.write_text(json.dumps(to_values(recipe), indent=2))  # JSON is YAML
    command = [sys.executable, "-m", "benchmarks.lab.child", str(os.getpid()), "train", str(path)]
    with (folder / "log").open("a") as log:
        subprocess.run(command, cwd=ROOT, stdout=log, stderr=log, timeout=MOST_SECONDS, check=True)


async def _measured(run: WorldRun, recipe: Recipe, model: Path) -> dict[str, dict[str, float]]:
    from benchmarks.lab.local.trainer import loaded, served

    async with served(recipe, *loaded(model)) as runner:
        return await measured(run.world, runner)

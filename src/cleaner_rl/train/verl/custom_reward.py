"""verl's `reward.custom_reward_function` as a grader. It takes the place of the graders that the tasks name.

It is called as verl's own reward manager calls it, about the rollout before any repair, and in our agent loop.
"""

from __future__ import annotations

from dataclasses import replace
from inspect import isawaitable
from typing import Any, cast

from cleaner_rl.rollout import load_function
from cleaner_rl.tasks import RewardFunction, Task
from cleaner_rl.train.recipe.settings import Recipe
from cleaner_rl.train.rows import Graded
from cleaner_rl.train.verl.settings import own_settings

CUSTOM = "custom_reward_function"
"""The grader's name, which tasks get in the place of their own."""
KEY = f"reward.{CUSTOM}"


def has_custom_reward(recipe: Recipe) -> bool:
    """Return whether a recipe names a reward function in verl's words."""
    return bool(own_settings(recipe).get(f"{KEY}.path"))


def custom_name(recipe: Recipe) -> str:
    """Return the recipe's reward function as `FILE.py:FUNCTION` or `MODULE:FUNCTION`."""
    own = own_settings(recipe)
    path = str(own[f"{KEY}.path"]).removeprefix("pkg://")
    return f"{path}:{own.get(f'{KEY}.name', 'compute_score')}"


def graded_by(recipe: Recipe, task: Task) -> Task:
    """Return the task with the grader that a recipe gives it."""
    return replace(task, grader=CUSTOM) if has_custom_reward(recipe) else task


def custom_graders(recipe: Recipe, tokenizer: Any = None) -> dict[str, RewardFunction]:
    """Return a recipe's reward function by its name; nothing if it names none. Grading needs a tokenizer."""
    if not has_custom_reward(recipe):
        return {}
    own = own_settings(recipe)
    function: Any = load_function(custom_name(recipe))
    prefix = f"{KEY}.reward_kwargs."
    options = {key.removeprefix(prefix): value for key, value in own.items() if key.startswith(prefix)}

    async def compute(task: Task, _text: str, rollout: Graded) -> float:
        response = rollout.ids()[len(rollout.prompt) :].tolist()
        said = function(
            data_source=task.source,
            solution_str=tokenizer.decode(response, skip_special_tokens=True),
            ground_truth=task.truth,
            extra_info={**task.extra, "split": task.split, "task": task.id, "num_turns": len(rollout.turns)},
            **options,
        )
        said = await said if isawaitable(said) else said
        return cast("float", said.get("score") if isinstance(said, dict) else said)  # checked by `tasks.grade`

    return {CUSTOM: compute}

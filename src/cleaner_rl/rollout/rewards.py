"""What a rollout is rewarded for: the grader of its task, and further graders and functions, each with a weight.

The reward is the weighted sum of their terms. It is computed once, of the rollout before any repair, so no repair
changes it: a penalty on failed calls stays when the calls are repaired.

Whether the rollout solved its task is the verdict of the task's own grader alone, whatever its weight is. Purification,
RoC, rescue and dynamic sampling on verl go by that. `extra["threshold"]` of a task is the score from which on it is
solved.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from math import isfinite
from pathlib import Path
from typing import cast

from cleaner_rl.tasks import AnyGrader, RewardFunction, Task
from cleaner_rl.trajectory import AnyTrajectory, first_attempt_tally

ANSWER = "answer"
"""The name, among weights, of the grader that a task itself names."""
ANSWER_ALONE: Mapping[str, float] = {ANSWER: 1.0}


def answer_found(_task: Task, _text: str, rollout: AnyTrajectory) -> float:
    """Return 1 if the task's grader found an answer, right or wrong; else 0."""
    return float(rollout.info.answer is not None)


def failed_calls(_task: Task, _text: str, rollout: AnyTrajectory) -> float:
    """Return minus the number of failed calls, so that a positive weight is the penalty on each."""
    return -float(first_attempt_tally(rollout).failed)


TERMS: Mapping[str, RewardFunction] = {"format": answer_found, "failed_calls": failed_calls}
"""Functions that come with the package."""


def check_weights(weights: Mapping[str, float], graders: Mapping[str, AnyGrader]) -> None:
    """Raise an error for a weight that isn't finite, or that belongs to no grader."""
    for name, weight in weights.items():
        if not isfinite(weight):
            raise ValueError(f"the weight of grader '{name}' is {weight}; give a finite number")
        if name != ANSWER and name not in graders:
            known = ", ".join(f"'{each}'" for each in (ANSWER, *graders))
            raise ValueError(f"there is no grader '{name}' to weight; available: {known}, or FILE.py:FUNCTION")


def load_function(name: str) -> RewardFunction:
    """Return the function that `FILE.py:FUNCTION` or `MODULE:FUNCTION` names."""
    where, _, attribute = name.rpartition(":")
    if where.endswith(".py"):
        path = Path(where).expanduser().absolute()
        spec = spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None or not path.is_file():
            raise ValueError(f"the grader '{name}' can't be loaded: there is no file {path}")
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        module = import_module(where)
    found = getattr(module, attribute, None)
    if not callable(found):
        raise ValueError(f"the grader '{name}' can't be loaded: {where} has no function '{attribute}'")
    return cast("RewardFunction", found)

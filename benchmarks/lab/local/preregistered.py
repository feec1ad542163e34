"""Judges the default method by the second plan: fresh models, fresh worlds, rivals at equal compute.

The plan is `preregistered.json`, with `PREREGISTERED`, `FRESH_MODELS` and `PREREGISTERED_STEPS` of `worlds`. It is
committed before a fresh model is made. Each environment has eight models of two worlds each; every method of the plan
runs once in each of them. The rivals of an environment are GRPO, GRPO with as many more steps as two views cost beside
it (where they cost more), and the best other method of the development worlds.

The default method

- is *not worse* than a rival if the interval of its accuracy minus the rival's is above -`least_accuracy`;
- is *better* in an environment if the corrected interval is above 0 for each rival there.

The plan *holds* if it is not worse than any rival of any environment, and better in `better_in` environments or more.
Where all of some claims must be true, none needs a correction for the others; "better in some environments" does, and
its intervals are corrected for the number of environments (Bonferroni).

The interval is that of a mixed model with models and worlds within models as random effects. Each model has as many
worlds, so it is Student's t over the means of models. It is one-sided at `level`: both ends together leave out twice as
much. A model counts once all of its runs in an environment are kept, and `missing` names those that aren't.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, lgamma, pi, sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from benchmarks.lab.local.margins import COSTS, Line, area
from benchmarks.lab.local.worlds import PREREGISTERED, WORLDS_OF_A_MODEL, World

PLAN = Path(__file__).with_suffix(".json")


@dataclass(frozen=True, slots=True)
class SecondPlan:
    """What was decided before the fresh models."""

    default: str
    """The method that is judged: `method: two-views` of a recipe."""
    at_mass_1: str
    """The same at the weight of one rollout: it is told beside the others, and no claim rests on it."""
    rivals: Mapping[str, Sequence[str]]
    """By environment."""
    rate: float
    """The learning rate of all methods, the best of a grid in a development world for those that were tried."""
    least_accuracy: float
    """How far below a rival's accuracy the default may be."""
    better_in: int
    """In how many environments it must be better than all rivals."""
    level: float
    """How often a one-sided claim may be wrong."""

    def methods(self, environment: str) -> list[str]:
        """Return the methods that run in an environment."""
        return [*self.rivals[environment], self.default, self.at_mass_1]


def read_second_plan(path: Path = PLAN) -> SecondPlan:
    """Read the plan."""
    return SecondPlan(**json.loads(path.read_text()))


def judged(lines: Sequence[Line], plan: SecondPlan) -> dict[str, Any]:
    """Judge every environment of the plan, by the lines that are kept."""
    found = {environment: _environment(lines, environment, plan) for environment in plan.rivals}
    better = [environment for environment, each in found.items() if each["better"]]
    not_worse = all(each["verdict"] == "holds" for each in found.values())
    return {
        "worlds": min(each["worlds"] for each in found.values()),
        "models": min(each["models"] for each in found.values()),
        "holds": not_worse and len(better) >= plan.better_in,
        "better_in": better,
        "missing": sum(len(worlds) for each in found.values() for worlds in each["missing"].values()),
        "by_environment": found,
    }


def _environment(lines: Sequence[Line], environment: str, plan: SecondPlan) -> dict[str, Any]:
    ran = {
        (each["method"], each["world"]): each
        for each in lines
        if each["environment"] == environment and each["rate"] == plan.rate and each["world"] in PREREGISTERED
    }
    methods = plan.methods(environment)
    missing = {each: [world for world in PREREGISTERED if (each, world) not in ran] for each in methods}
    of_model: dict[int | None, list[int]] = {}
    for world in PREREGISTERED:
        of_model.setdefault(World(environment, world).fresh_model, []).append(world)
    whole = [worlds for worlds in of_model.values() if all((each, w) in ran for each in methods for w in worlds)]
    head = {
        "models": len(whole),
        "worlds": WORLDS_OF_A_MODEL * len(whole),
        "missing": {method: worlds for method, worlds in missing.items() if worlds},
    }
    if not whole:
        return {**head, "methods": {}, "verdict": "undecided", "better": False}
    figures = {each: _figures([[ran[each, world] for world in worlds] for worlds in whole], plan) for each in methods}
    verdicts, better = [], True
    for method in methods:
        if method == plan.default:
            continue
        apart = [
            [_accuracy(ran[plan.default, world]) - _accuracy(ran[method, world]) for world in worlds]
            for worlds in whole
        ]
        margin = interval(apart, plan.level)
        corrected = interval(apart, plan.level / len(plan.rivals))
        low, high = margin["low"], margin["high"]
        verdict = "undecided"
        if low is not None and low > -plan.least_accuracy:
            verdict = "holds"
        elif high is not None and high < -plan.least_accuracy:
            verdict = "fails"
        figures[method] |= {"default_minus_this": margin, "corrected": corrected, "verdict": verdict}
        if method in plan.rivals[environment]:
            verdicts.append(verdict)
            better = better and (corrected["low"] or 0.0) > 0
    verdict = "fails" if "fails" in verdicts else "undecided" if "undecided" in verdicts else "holds"
    figures[plan.default]["verdict"] = verdict
    return {**head, "methods": figures, "verdict": verdict, "better": better}


def _accuracy(line: Line) -> float:
    accuracy: float = line["test"]["accuracy"]
    return accuracy


def _figures(by_model: Sequence[Sequence[Line]], plan: SecondPlan) -> dict[str, Any]:
    """Return what is told of a method in an environment, from the lines of each model."""
    lines = [line for some in by_model for line in some]
    return {
        "accuracy": interval([[_accuracy(line) for line in some] for some in by_model], plan.level),
        "area": round(fmean(map(area, lines)), 4),
        "failed_calls": round(fmean(line["test"]["errors"] for line in lines), 3),
        "recovery": round(fmean(line["recovery"]["right"] for line in lines), 3),
        "last_entropy": round(fmean(line["updates"]["entropy"][-1] for line in lines), 3),
        **{name: round(fmean(line[name] for line in lines)) for name in COSTS},
    }


def interval(by_model: Sequence[Sequence[float]], level: float) -> dict[str, float | None]:
    """Return the mean with its interval, and the deviations between models and between worlds of one model.

    Args:
        by_model: For each model, the values of its worlds: as many for each.
        level: How often the mean lies below the interval; as often it lies above.
    """
    means, number = [fmean(values) for values in by_model], len(by_model[0])
    mean = fmean(means)
    within = fmean([stdev(values) ** 2 for values in by_model]) if number > 1 else 0.0
    found = {"mean": mean, "low": -inf, "high": inf, "between_models": inf, "between_worlds": sqrt(within)}
    if len(means) > 1:
        half = student(len(means) - 1, 1 - level) * stdev(means) / sqrt(len(means))
        spread = sqrt(max(0.0, stdev(means) ** 2 - within / number))
        found |= {"low": mean - half, "high": mean + half, "between_models": spread}
    return {name: None if abs(value) == inf else round(value, 4) for name, value in found.items()}


def student(freedom: int, share: float) -> float:
    """Return the quantile of Student's t: a value is below it with this probability, which is above one half."""
    low, high = 0.0, 1e4
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _below(middle, freedom) < share else (low, middle)
    return high


def _below(value: float, freedom: int) -> float:
    """Return the probability of a value below this one, by the substitution t = √n tan(angle)."""
    angle = np.linspace(0.0, float(np.arctan(value / sqrt(freedom))), 2_001)
    density = exp(lgamma((freedom + 1) / 2) - lgamma(freedom / 2)) / sqrt(pi)
    heights = density * np.cos(angle) ** (freedom - 1)
    weights = np.where(np.arange(2_001) % 2, 4.0, 2.0)
    weights[[0, -1]] = 1.0
    return 0.5 + float((weights * heights).sum()) * float(angle[1] - angle[0]) / 3

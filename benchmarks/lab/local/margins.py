"""Judges two views + rescue in each environment by the margins of the plan, from the fresh worlds alone.

The plan (`plan.json`) is committed before a fresh world is touched. It names each method's learning rate, each
environment's comparator, both chosen in development worlds, and the margins. A difference is of two methods in the same
world; its interval is by Student's t over worlds. Every world that was run counts.

A margin *holds* if the whole interval is on its right side, *fails* if it is on the wrong side, and is *undecided*
otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from benchmarks.lab.environments import REAL
from benchmarks.lab.local.methods import COMPARED, GRPO, METHODS, OTHERS, OURS, SAAR, WITH_OTHERS
from benchmarks.lab.local.worlds import FRESH, FRESH_COMPARED, FRESH_OTHERS, World

RATES = (1.5e-4, 3e-4, 6e-4)
"""The grid that each method's learning rate is chosen from; the second until then."""
REAL_RATE = 3e-5
"""Of a real language model, for every method."""
PLAN = Path(__file__).with_name("plan.json")
T_95 = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753)
"""Quantiles of Student's t, by degrees of freedom from 1 on: both tails together leave out 10 %."""

COSTS = ("sampled_tokens", "scored_tokens", "trained_tokens", "calls", "cpu_seconds")
"""What a run took."""

Line = Mapping[str, Any]
"""What is kept of a run."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over worlds, with its 90 % interval."""

    mean: float
    low: float
    high: float
    worlds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Interval:
        """By Student's t; without an end where there is one world only."""
        mean = fmean(values)
        if len(values) < 2:
            return cls(mean, float("-inf"), float("inf"), len(values))
        half = T_95[len(values) - 2] * stdev(values) / sqrt(len(values))
        return cls(mean, mean - half, mean + half, len(values))

    def above(self, bound: float) -> str:
        """Say whether it is above a bound."""
        return "holds" if self.low > bound else "fails" if self.high < bound else "undecided"

    def below(self, bound: float) -> str:
        """Say whether it is below a bound."""
        return "holds" if self.high < bound else "fails" if self.low > bound else "undecided"

    def to_json(self) -> dict[str, float | None]:
        """As JSON values, rounded; an end that there is none of is null."""
        found = {name: round(value, 4) for name, value in asdict(self).items()}
        return {name: None if abs(value) == float("inf") else value for name, value in found.items()}


@dataclass(frozen=True, slots=True)
class Plan:
    """What was decided before the fresh worlds."""

    rates: Mapping[str, float]
    """The learning rate of each method."""
    comparators: Mapping[str, str]
    """The best of GRPO, SAAR and hindsight in each environment, in the development worlds."""
    least_accuracy: float
    """How far below the comparator's accuracy ours may be: its whole interval must be above."""
    most_tokens: float
    """Of GRPO's sampled tokens."""
    most_tokens_of_saar: float
    """Where SAAR is the comparator."""
    most_failed_calls: float
    """More than the comparator's, per rollout."""
    least_recovery: float
    """How far below the comparator's recovery ours may be."""

    def rate(self, environment: str, method: str) -> float:
        """Return a method's learning rate in an environment."""
        return REAL_RATE if environment == REAL else self.rates.get(method, RATES[1])

    def needed(self, environment: str) -> list[str]:
        """Return the methods that the margins compare in an environment."""
        if environment == REAL:
            return [GRPO, OURS]
        return list(dict.fromkeys([GRPO, self.comparators[environment], OURS]))

    def methods_in(self, world: World) -> list[str]:
        """Return the methods that run in a world."""
        if world.environment == REAL or (world.number in FRESH and world.number not in FRESH_COMPARED):
            return self.needed(world.environment)
        more = OTHERS if world.environment in WITH_OTHERS and world.number in FRESH_OTHERS else ()
        return [*COMPARED, *more]


def read_plan(path: Path = PLAN) -> Plan:
    """Read the plan."""
    return Plan(**json.loads(path.read_text()))


def fresh(lines: Sequence[Line], plan: Plan) -> list[Line]:
    """Return the lines of fresh worlds with the plan's learning rates, of worlds in which all needed methods have run.

    So every method's mean is over the same worlds, or over the first of them.
    """
    chosen = [
        each
        for each in lines
        if each["world"] in FRESH and each["rate"] == plan.rate(each["environment"], each["method"])
    ]
    ran = {(each["environment"], each["world"], each["method"]) for each in chosen}
    return [
        each
        for each in chosen
        if each["environment"] in plan.comparators
        and all((each["environment"], each["world"], needed) in ran for needed in plan.needed(each["environment"]))
    ]


def by_world(lines: Sequence[Line], environment: str, method: str) -> dict[int, Line]:
    """Return the lines of a method in an environment, by world."""
    return {each["world"]: each for each in lines if (each["environment"], each["method"]) == (environment, method)}


def paired(ours: Mapping[int, Line], theirs: Mapping[int, Line], part: str, figure: str) -> Interval:
    """Return the difference in a figure over our worlds, all of which they have, too."""
    return Interval.of([line[part][figure] - theirs[world][part][figure] for world, line in sorted(ours.items())])


def token_ratio(ours: Mapping[int, Line], theirs: Mapping[int, Line]) -> Interval:
    """Return our sampled tokens over theirs."""
    return Interval.of(
        [line["sampled_tokens"] / theirs[world]["sampled_tokens"] for world, line in sorted(ours.items())]
    )


def margins(lines: Sequence[Line], plan: Plan) -> dict[str, Any]:
    """Judge every environment of the plan."""
    chosen = fresh(lines, plan)
    by_regime = {
        environment: _judged(chosen, environment, comparator, plan)
        for environment, comparator in plan.comparators.items()
    }
    return {
        "worlds": min((each["worlds"] for each in by_regime.values()), default=0),
        "holds": bool(by_regime) and all(each["verdict"] == "holds" for each in by_regime.values()),
        "by_regime": by_regime,
    }


def _judged(lines: Sequence[Line], environment: str, comparator: str, plan: Plan) -> dict[str, Any]:
    found = {method: worlds for method in METHODS if (worlds := by_world(lines, environment, method))}
    head = {"worlds": len(found.get(OURS, {})), "comparator": comparator}
    if not found:
        return {**head, "methods": {}, "margins": {}, "verdict": "undecided"}
    methods = {
        method: {**_figures(worlds, found[GRPO]), "verdict": _verdict(worlds, found[comparator], plan)}
        for method, worlds in found.items()
    }
    verdicts = _verdicts(found[OURS], found[comparator], found[GRPO], comparator, plan)
    told = [each["verdict"] for each in verdicts.values()]
    verdict = "fails" if "fails" in told else "undecided" if "undecided" in told else "holds"
    return {**head, "methods": methods, "margins": verdicts, "verdict": verdict}


def _verdict(worlds: Mapping[int, Line], theirs: Mapping[int, Line], plan: Plan) -> str:
    """Judge a method's accuracy beside the comparator's."""
    return paired(worlds, theirs, "test", "accuracy").above(-plan.least_accuracy)


def _verdicts(
    ours: Mapping[int, Line], theirs: Mapping[int, Line], grpo: Mapping[int, Line], comparator: str, plan: Plan
) -> dict[str, dict[str, Any]]:
    accuracy = paired(ours, theirs, "test", "accuracy")
    failed, recovery = paired(ours, theirs, "test", "errors"), paired(ours, theirs, "recovery", "right")
    tokens, of_saar = token_ratio(ours, grpo), token_ratio(ours, theirs)
    judged = {
        "accuracy": (accuracy, accuracy.above(-plan.least_accuracy)),
        "failed_calls": (failed, failed.below(plan.most_failed_calls)),
        "recovery": (recovery, recovery.above(-plan.least_recovery)),
        "tokens_over_grpo": (tokens, tokens.below(plan.most_tokens)),
    }
    if comparator == SAAR:
        judged["tokens_over_saar"] = (of_saar, of_saar.below(plan.most_tokens_of_saar))
    return {name: {**interval.to_json(), "verdict": verdict} for name, (interval, verdict) in judged.items()}


def _figures(worlds: Mapping[int, Line], grpo: Mapping[int, Line]) -> dict[str, Any]:
    """Return what is told of a method in an environment."""
    lines = list(worlds.values())
    return {
        "start": round(fmean(each["curve"]["0"]["accuracy"] for each in lines), 4),
        "accuracy": Interval.of([each["test"]["accuracy"] for each in lines]).to_json(),
        "area": round(fmean(area(each) for each in lines), 4),
        "failed_calls": round(fmean(each["test"]["errors"] for each in lines), 3),
        "first_call_works": round(fmean(each["test"]["first_call_works"] for each in lines), 3),
        "recovery": round(fmean(each["recovery"]["right"] for each in lines), 3),
        "accuracy_over_grpo": paired(worlds, grpo, "test", "accuracy").to_json(),
        "tokens_over_grpo": round(token_ratio(worlds, grpo).mean, 3),
        "costs": {name: round(fmean(each[name] for each in lines)) for name in COSTS},
    }


def area(line: Line) -> float:
    """Return the mean accuracy over the evaluations after the first: the area under the curve."""
    return fmean(each["accuracy"] for step, each in line["curve"].items() if step != "0")

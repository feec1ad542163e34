"""Summarizes runs: curves, steps and tokens to GRPO's final accuracy, ranges over seeds.

- *Final* is the median of the evaluations in a run's last third, so that one outlier changes nothing.
- A run's *target* is the final accuracy of GRPO with the same seed, which begins with the same model.
- A run *reaches* it where the mean of three neighbouring evaluations first does, on straight lines between them.
- A ratio is to GRPO's own figure with the same seed: to where it first was at its final accuracy, which on a level
  curve may be early, or to all of its run. What is given of seeds is their mean, the least and the most.

Tokens are all that were sampled in training: attempts of lookaheads, rollouts that RoC left out, groups refilled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TypeAlias

from benchmarks.lab.methods import BASELINE, METHODS, TUNING
from benchmarks.lab.results import RESULTS, Result, read_all

LAST = 6
"""Number of training steps at a run's end."""
EARLY = 20
"""Number of steps in which most is learned."""
Points: TypeAlias = list[tuple[float, float]]
X: TypeAlias = Callable[[Result, int], float]
"""What a curve is drawn against, at a step."""


def steps(_result: Result, step: int) -> float:
    """RL steps."""
    return float(step)


def tokens(result: Result, step: int) -> float:
    """Thousands of tokens sampled in training so far."""
    return sum(each["sampled_tokens"] for at, each in result.training.items() if at <= step) / 1_000


def minutes(result: Result, step: int) -> float:
    """Minutes of training so far, evaluation and start-up left out."""
    # A step that a start was broken off in has no time of its own; it took what steps take.
    usual = _usual(result) or 0.0
    return sum(each.get("seconds", usual) for at, each in result.training.items() if at <= step) / 60


def curve(result: Result, figure: str, x: X = steps) -> Points:
    """A figure of the evaluations."""
    return [(x(result, step), each[figure]) for step, each in sorted(result.evaluation.items()) if figure in each]


def training_curve(result: Result, figure: str, x: X = steps) -> Points:
    """A figure of the training steps."""
    return [(x(result, step), each[figure]) for step, each in sorted(result.training.items()) if figure in each]


def smoothed(points: Points) -> Points:
    """Each value the mean of itself and its neighbours."""
    values = [value for _, value in points]
    return [(x, mean(values[max(0, index - 1) : index + 2])) for index, (x, _) in enumerate(points)]


def final(result: Result, figure: str = "accuracy") -> float:
    """The median of the evaluations in a run's last third."""
    return median([value for step, value in curve(result, figure) if 3 * step >= 2 * result.steps])


def reached(points: Points, target: float) -> float | None:
    """Where the smoothed curve first reaches a value; None if it never does."""
    before: tuple[float, float] | None = None
    for x, value in smoothed(points):
        if value >= target:
            if before is None:
                return x
            left, low = before
            return left + (x - left) * (target - low) / (value - low)
        before = x, value
    return None


def at(points: Points, x: float) -> float | None:
    """A curve's value between its points; None outside of them."""
    for (left, low), (right, high) in pairwise(points):
        if left <= x <= right:
            return low + (high - low) * (x - left) / (right - left) if right > left else high
    return None


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure over seeds: those that have it, of how many."""

    values: tuple[float, ...]
    seeds: int

    @property
    def mean(self) -> float | None:
        """None if no seed has it."""
        return mean(self.values) if self.values else None


def spread(values: Sequence[float | None]) -> Spread:
    """Of one value a seed; None where there is none."""
    return Spread(tuple(each for each in values if each is not None), len(values))


@dataclass(frozen=True, slots=True)
class Summary:
    """One method in one environment, over its finished seeds."""

    method: str
    regime: str
    accuracy: Spread
    errors: Spread
    first_call: Spread
    raw_errors: Spread
    recovery: Spread
    zero_variance: Spread
    """The share of zero-variance groups over all of training."""
    works_if_right: Spread
    """In the other groups, early in training: right rollouts, as trained on, whose first call works."""
    works_if_wrong: Spread
    steps: Spread
    """Steps to the target."""
    step_ratio: Spread
    tokens: Spread
    token_ratio: Spread
    step_share: Spread
    """Relative to GRPO's whole run."""
    token_share: Spread
    worst: float | None
    """The worst difference to GRPO's accuracy at equal tokens, of means over seeds."""
    worst_seed: float | None
    """The same of the worst seed."""
    seconds: Spread
    """Seconds per step."""

    @property
    def seeds(self) -> int:
        """How many there are."""
        return self.accuracy.seeds


def summaries(results: Sequence[Result], regime: str) -> list[Summary]:
    """Summarize all methods with a finished run in an environment, in their order."""
    finished = [each for each in results if each.run.regime == regime and each.finished]
    baseline = {each.run.seed: each for each in finished if each.run.method == BASELINE}
    methods = {name: [each for each in finished if each.run.method == name] for name in METHODS}
    tuning = {method.name for method in TUNING}
    return [_summary(name, regime, runs, baseline) for name, runs in methods.items() if runs and (name not in tuning)]


def _summary(method: str, regime: str, runs: Sequence[Result], baseline: dict[int, Result]) -> Summary:
    paired = [(each, baseline[each.run.seed]) for each in runs if each.run.seed in baseline]
    to_steps = [(_to_target(run, other, steps), _to_target(other, other, steps)) for run, other in paired]
    to_tokens = [(_to_target(run, other, tokens), _to_target(other, other, tokens)) for run, other in paired]
    return Summary(
        method=method,
        regime=regime,
        accuracy=spread([final(each) for each in runs]),
        errors=spread([final(each, "errors") for each in runs]),
        first_call=spread([_first_call(each) for each in runs]),
        raw_errors=spread([mean([y for _, y in training_curve(each, "raw_errors")][-LAST:]) for each in runs]),
        recovery=spread([each.recovery.get(each.steps, {}).get("right") for each in runs]),
        zero_variance=spread([mean([y for _, y in training_curve(each, "zero_variance_groups")]) for each in runs]),
        works_if_right=spread([_early(each, "works_if_right") for each in runs]),
        works_if_wrong=spread([_early(each, "works_if_wrong") for each in runs]),
        steps=spread([own for own, _ in to_steps]),
        step_ratio=spread([_ratio(own, other) for own, other in to_steps]),
        tokens=spread([own for own, _ in to_tokens]),
        token_ratio=spread([_ratio(own, other) for own, other in to_tokens]),
        step_share=spread([_ratio(own[0], other.steps) for own, (_, other) in zip(to_steps, paired, strict=True)]),
        token_share=spread(
            [_ratio(own[0], tokens(other, other.steps)) for own, (_, other) in zip(to_tokens, paired, strict=True)]
        ),
        worst=worst_difference([run for run, _ in paired], [other for _, other in paired]),
        worst_seed=_least([worst_difference([run], [other]) for run, other in paired]),
        seconds=spread([_usual(each) for each in runs]),
    )


def _first_call(result: Result) -> float | None:
    """How often it works, at the end; None without a tool."""
    return final(result, "first_call_works") if curve(result, "first_call_works") else None


def _early(result: Result, figure: str) -> float:
    return mean([value for step, value in training_curve(result, figure) if step <= EARLY])


def worst_difference(runs: Sequence[Result], others: Sequence[Result]) -> float | None:
    """The least of a mean curve minus another, over all token counts that all runs have come to."""
    if not runs:
        return None
    ours = [curve(each, "accuracy", tokens) for each in runs]
    theirs = [curve(each, "accuracy", tokens) for each in others]
    end = min(points[-1][0] for points in (*ours, *theirs))
    places = sorted({x for points in (*ours, *theirs) for x, _ in points if 0 < x <= end})
    differences = [_mean_at(ours, x) - _mean_at(theirs, x) for x in places]
    return min(differences, default=None)


def with_larger_budget(results: Sequence[Result]) -> list[Result]:
    """Return the runs whose models were evaluated with more turns, with those evaluations."""
    return [replace(each, evaluation=each.larger_budget) for each in results if each.larger_budget]


def tuned_rate(folder: Path = RESULTS) -> float | None:
    """Return the learning rate with GRPO's best final accuracy; None until all were tried."""
    tried = {
        each.run.method: each for each in read_all(folder) if each.run.method in {method.name for method in TUNING}
    }
    if len(tried) < len(TUNING) or not all(each.finished for each in tried.values()):
        return None
    return max(tried.values(), key=final).rate


def _to_target(run: Result, baseline: Result, x: X) -> float | None:
    return reached(curve(run, "accuracy", x), final(baseline))


def _ratio(own: float | None, other: float | None) -> float | None:
    return own / other if own is not None and other else None


def _mean_at(curves: Sequence[Points], x: float) -> float:
    return mean([value for points in curves if (value := at(points, x)) is not None])


def mean(values: Sequence[float]) -> float:
    """Of at least one."""
    return sum(values) / len(values) if values else float("nan")


def _usual(result: Result) -> float | None:
    """Seconds of a step."""
    known = [seconds for _, seconds in training_curve(result, "seconds")]
    return median(known) if known else None


def _least(values: Sequence[float | None]) -> float | None:
    return min((each for each in values if each is not None), default=None)

"""Made-up runs: curves of which every figure is known."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.lab.recipes import Run
from benchmarks.lab.results import Result

BEGUN = {"works_if_right": 0.9, "works_if_wrong": 0.3}


def result(
    method: str,
    seed: int = 0,
    regime: str = "drift",
    *,
    accuracy: Callable[[int], float],
    tokens: float = 1_000.0,
    steps: int = 60,
    rate: float = 3e-4,
) -> Result:
    """A run whose accuracy is a function of the step, and which samples so many tokens in each."""
    training = {
        step: {
            "sampled_tokens": tokens,
            "seconds": 6.0,
            "raw_errors": 0.5,
            "logprob_gap": 1.0,
            "zero_variance_groups": 0.25,
            **BEGUN,
        }
        for step in range(1, steps + 1)
    }
    evaluation = {
        step: {
            "accuracy": accuracy(step),
            "errors": 0.1,
            "first_call_works": 0.9,
            "length": 50.0,
            "calls": 2.0,
            "cut": 0.1,
            "rollouts": 256,
            **{f"accuracy_{count}_changed": accuracy(step) - count / 100 for count in range(3)},
            **{f"first_call_works_{count}_changed": 0.9 - count / 10 for count in range(3)},
        }
        for step in range(0, steps + 1, 5)
    }
    recovery = {0: {"right": 0.5}, steps: {"right": 0.4}}
    return Result(Run(regime, method, seed), steps, 0.2, training, evaluation, recovery, rate=rate)


def rising(to: float, until: int) -> Callable[[int], float]:
    """From 0.4 in a straight line, then level."""
    return lambda step: 0.4 + (to - 0.4) * min(1.0, step / until)

"""The order of all runs: the main comparison, then the other environments, then the ablations.

All methods of a seed run before the next seed, so that the runs can be compared whenever the lab is stopped.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.lab.environments import DRIFT, REAL, SLIPS, STARVED, UNHINTED
from benchmarks.lab.methods import ABLATIONS, REQUIRED, TUNING
from benchmarks.lab.recipes import Run

SEEDS = (0, 1, 2)
IN_REAL = ("grpo", "hindsight-successes", "saar")
IN_STARVED = ("grpo", "saar", "hindsight-successes", "hindsight", "saar-then-hindsight")


def order() -> list[Run]:
    """Return all runs in order."""
    required = [method.name for method in REQUIRED]
    return [
        *(Run(DRIFT, method.name, 0) for method in TUNING),
        *_grid(DRIFT, required),
        *_grid(SLIPS, required),
        *(Run(REAL, method, 0) for method in IN_REAL),
        *_grid(STARVED, IN_STARVED),
        *(Run(DRIFT, method.name, 0) for method in ABLATIONS if not method.retired),
        *_grid(UNHINTED, required),
    ]


def _grid(regime: str, methods: Sequence[str]) -> list[Run]:
    return [Run(regime, method, seed) for seed in SEEDS for method in methods]

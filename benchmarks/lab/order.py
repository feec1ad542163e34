"""What runs when: first what the headline needs, then the other regimes, then the controls.

In each part all arms of a seed come before the next seed, so that whenever the lab is stopped, what there is can be
compared.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.lab.arms import CONTROLS, REQUIRED, TUNING
from benchmarks.lab.recipes import Run
from benchmarks.lab.worlds import DRIFT, REAL, SLIPS, STARVED, UNHINTED

SEEDS = (0, 1, 2)
IN_REAL = ("dapo", "hindsight-successes", "saar")
IN_STARVED = ("dapo", "saar", "hindsight-successes", "hindsight", "saar-then-hindsight")


def order() -> list[Run]:
    """All runs."""
    required = [arm.name for arm in REQUIRED]
    return [
        *(Run(DRIFT, arm.name, 0) for arm in TUNING),
        *_grid(DRIFT, required),
        *_grid(SLIPS, required),
        *(Run(REAL, arm, 0) for arm in IN_REAL),
        *_grid(STARVED, IN_STARVED),
        *(Run(DRIFT, arm.name, 0) for arm in CONTROLS),
        *_grid(UNHINTED, required),
    ]


def _grid(regime: str, arms: Sequence[str]) -> list[Run]:
    return [Run(regime, arm, seed) for seed in SEEDS for arm in arms]

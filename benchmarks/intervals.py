"""How often the two intervals of a difference hold the truth, and how wide they are.

python -m benchmarks.intervals --json

Two models answer thirty problems, eight times each. Each draw makes new problems and new samples, and compares them
with `cleaner_rl.evaluate.difference`. The interval for these problems should hold the mean difference of the problems
that were drawn, the one for problems at large the mean over all problems of the kind.

Five shapes of difficulty differ in how right answers are spread over problems. Two more break what the intervals rest
on: problems that come in families of three, and a model that turns around on one problem in fifty.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.record import save
from cleaner_rl.evaluate import difference
from cleaner_rl.evaluate.rates import Rate

PROBLEMS, SAMPLES = 30, 8
FAMILY = 3
AT_LARGE = 2_000_000
"""Problems behind the mean over all of a kind."""
GAIN, SPREAD = 0.4, 0.6
"""Mean and deviation over problems of what the second model gains, in log-odds."""

Chances = npt.NDArray[np.float64]
Make = Callable[[np.random.Generator, int], tuple[Chances, Chances]]
"""So many problems: how often each model is right."""


def _gaining(first: Chances, gains: Chances) -> tuple[Chances, Chances]:
    first = np.clip(first, 1e-6, 1 - 1e-6)
    return first, 1 / (1 + (1 - first) / first * np.exp(-gains))


def _shape(draw: Callable[[np.random.Generator, int], Chances]) -> Make:
    """Problems of this difficulty, on which the second model gains independently of it."""
    return lambda generator, size: _gaining(draw(generator, size), generator.normal(GAIN, SPREAD, size))


def _bimodal(generator: np.random.Generator, size: int) -> Chances:
    return np.where(generator.random(size) < 0.5, generator.beta(1, 30, size), generator.beta(30, 1, size))


def _correlated(generator: np.random.Generator, size: int) -> tuple[Chances, Chances]:
    """The harder the problem, the more the second model gains; on the easiest it loses."""
    first = generator.beta(1, 1, size)
    return _gaining(first, 2 * GAIN * (1.5 - 2 * first) + generator.normal(0, SPREAD, size))


def _families(generator: np.random.Generator, size: int) -> tuple[Chances, Chances]:
    """Three problems in a row are alike."""
    few = -(-size // FAMILY)
    first, second = _gaining(generator.beta(1, 1, few), generator.normal(GAIN, SPREAD, few))
    return np.repeat(first, FAMILY)[:size], np.repeat(second, FAMILY)[:size]


def _turned(generator: np.random.Generator, size: int) -> tuple[Chances, Chances]:
    """One problem in fifty turns from hardly ever right to always right."""
    first = np.full(size, 0.004)
    return first, np.where(generator.random(size) < 0.02, 1.0, first)


SHAPES: dict[str, Make] = {
    "even": _shape(lambda _, size: np.full(size, 0.5)),
    "easy": _shape(lambda generator, size: generator.beta(6, 1, size)),
    "hard": _shape(lambda generator, size: generator.beta(0.5, 4, size)),
    "bimodal": _shape(_bimodal),
    "correlated": _correlated,
}
BROKEN: dict[str, Make] = {"families": _families, "one_in_fifty": _turned}


def measure(make: Make, draws: int, seed: int) -> dict[str, float]:
    """Coverage in percent and mean width in percent points, of both intervals."""
    generator = np.random.default_rng(seed)
    first, second = make(generator, AT_LARGE)
    at_large = float(np.mean(second - first))
    held = {"here": 0, "large": 0}
    widths = {"here": 0.0, "large": 0.0}
    for _ in range(draws):
        chances = make(generator, PROBLEMS)
        before, after = (
            {str(index): Rate(int(right), SAMPLES) for index, right in enumerate(generator.binomial(SAMPLES, each))}
            for each in chances
        )
        found = difference(before, after)
        assert found.low is not None
        assert found.high is not None
        assert found.here_low is not None
        assert found.here_high is not None
        here = float(np.mean(chances[1] - chances[0]))
        held["here"] += found.here_low <= here <= found.here_high
        held["large"] += found.low <= at_large <= found.high
        widths["here"] += found.here_high - found.here_low
        widths["large"] += found.high - found.low
    return {
        "difference": round(100 * at_large, 1),
        **{f"{name}_coverage": round(100 * count / draws, 1) for name, count in held.items()},
        **{f"{name}_width": round(100 * width / draws, 1) for name, width in widths.items()},
    }


def main() -> None:
    """Simulate, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=4_000, help="comparisons for each shape")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--save", type=Path, help="also write the figures to this file, with commit and machine")
    arguments = parser.parse_args()
    figures = {
        kind: {name: measure(make, arguments.draws, arguments.seed) for name, make in shapes.items()}
        for kind, shapes in {"shapes": SHAPES, "assumptions_broken": BROKEN}.items()
    }
    if arguments.save:
        settings = {"problems": PROBLEMS, "samples": SAMPLES, "draws": arguments.draws, "seed": arguments.seed}
        save(arguments.save, figures, settings)
    if arguments.json:
        print(json.dumps(figures))
        return
    for shapes in figures.values():
        for name, found in shapes.items():
            print(f"{name:14}" + "  ".join(f"{key} {value:5}" for key, value in found.items()))


if __name__ == "__main__":
    main()

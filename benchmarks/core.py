"""What the pure rooms cost: `python -m benchmarks.core --json`.

CPU time of this process, medians of repeats; the store's figures are ratios to bare pyarrow in the same run, because
these machines are shared. `--save FILE` also keeps them with commit and machine.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks.core_repair import repair_ms
from benchmarks.core_resample import resample_ms
from benchmarks.core_similarity import similarity_worst_ms
from benchmarks.core_store import store_ratios
from benchmarks.record import save

GOALS = {
    "repair_20k_ms": "under 20",
    "repair_40k_over_20k": "2.5 at most",
    "similarity_worst_ms": "under 50",
    "resample_ms": "under 50",
    "store_write_ratio": "0.5 or more",
    "store_read_ratio": "0.5 or more",
}


def main() -> None:
    """Measure, and print one line a figure, or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--trajectories", type=int, default=10_000, help="for the store (default: 10000)")
    parser.add_argument("--save", type=Path, help="also write the figures to this file, with commit and machine")
    arguments = parser.parse_args()
    twenty, forty = repair_ms(20_000), repair_ms(40_000)
    figures = {
        "repair_20k_ms": twenty,
        "repair_40k_over_20k": forty / twenty,
        "similarity_worst_ms": similarity_worst_ms(),
        "resample_ms": resample_ms(),
        **store_ratios(arguments.trajectories, 7_000),
    }
    figures = {name: round(value, 3) for name, value in figures.items()}
    if arguments.save:
        save(arguments.save, figures, {"store_trajectories": arguments.trajectories})
    if arguments.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:22} {value:8.3f}   goal: {GOALS[name]}")


if __name__ == "__main__":
    main()

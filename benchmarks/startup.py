"""What starting costs: CPU time of importing the pure packages, and of the command `cleaner` up to its options.

python -m benchmarks.startup --json
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.record import save

PROBE = "import time; begun = time.process_time(); import {modules}; print(time.process_time() - begun)"
MODULES = {
    "packages_ms": ("cleaner_rl.tools", "cleaner_rl.trajectory", "cleaner_rl.purify", "cleaner_rl.resample"),
    "command_ms": ("cleaner_rl.cli",),
}
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}
"""numpy's BLAS starts a thread for each core as it loads, and each counts as CPU time: a cost of the machine's size."""


def least_ms(modules: tuple[str, ...], rounds: int) -> float:
    """The least of several tries: neighbours on a shared machine only ever add to it."""
    command = [sys.executable, "-c", PROBE.format(modules=", ".join(modules))]
    environment = {**os.environ, **ONE_THREAD}
    tries = [
        float(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout)
        for _ in range(rounds)
    ]
    return round(1e3 * min(tries), 1)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--save", type=Path, help="also write the figures to this file, with commit and machine")
    arguments = parser.parse_args()
    figures = {name: least_ms(modules, arguments.rounds) for name, modules in MODULES.items()}
    if arguments.save:
        save(arguments.save, figures, {"rounds": arguments.rounds})
    print(json.dumps(figures) if arguments.json else "\n".join(f"{name:12} {ms}" for name, ms in figures.items()))


if __name__ == "__main__":
    main()

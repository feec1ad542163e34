"""The child processes of the lab; each ends when the lab does.

python -m benchmarks.lab.child environment REGIME SEED     make a cold start
python -m benchmarks.lab.child train RECIPE                `cleaner train RECIPE`
python -m benchmarks.lab.child recovery REGIME SEED RUN    measure the models of a run's folder
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from pathlib import Path

RECOVERY_EVERY = 30
PR_SET_PDEATHSIG = 1


def end_with(parent: int, by: signal.Signals = signal.SIGINT) -> None:
    """Arrange for a signal when the parent dies; else the next lab would find this run still in its folder."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, by)
    if os.getppid() != parent:
        sys.exit("the lab has ended already")


def recovery(regime: str, seed: int, folder: Path) -> None:
    """Measure what isn't measured yet: the cold start, some of the run's models, and its last one."""
    from benchmarks.lab.environments import toy_environment
    from benchmarks.lab.reading import models
    from benchmarks.lab.recovery import recovery as measured

    begun = toy_environment(regime, seed)
    shared = begun.folder / "recovery.json"
    if not shared.exists():
        part = shared.with_suffix(f".part{os.getpid()}")
        part.write_text(json.dumps(measured(begun.folder / "model", begun)))
        part.rename(shared)
    path = folder / "recovery.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    found["0"] = json.loads(shared.read_text())
    trained = models(folder)
    for step, model in trained.items():
        if (step % RECOVERY_EVERY == 0 or step == max(trained)) and str(step) not in found:
            found[str(step)] = measured(model, begun)
    path.write_text(json.dumps(found))


def main() -> None:
    """Do what the arguments say."""
    parent, what, *arguments = sys.argv[1:]
    end_with(int(parent))
    if what == "environment":
        from benchmarks.lab.environments import toy_environment

        toy_environment(arguments[0], int(arguments[1])).make()
    elif what == "train":
        from cleaner_rl.cli import main as cleaner

        cleaner(["train", *arguments])
    else:
        recovery(arguments[0], int(arguments[1]), Path(arguments[2]))


if __name__ == "__main__":
    main()

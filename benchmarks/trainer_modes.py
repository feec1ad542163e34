"""Compares verl's trainer modes `sync` and `separate_async`: `python -m benchmarks.trainer_modes FOLDER --json`.

FOLDER is one of `benchmarks.toy`. Each seed trains ten steps of SAAR with RoC in both modes, from the same model and on
the same tasks, with one rank; `separate_async` has an engine of its own beside it. Does training on rollouts of older
weights cost accuracy, and how long is a step? The learning rate is a third of the recipe's, which leaves no room for
older weights: at 6e-4 one of two runs fell. On two cores the engine and the trainer share the processor, so a step
of `separate_async` can't be as much shorter as it would be on machines of their own.

Needs the engines; each run takes some minutes. Runs that are finished in `--runs` aren't repeated.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.lab.reading import evaluations, read_lines
from benchmarks.lab.recipes import MICRO_BATCH, RATE
from benchmarks.record import save
from benchmarks.training import train
from cleaner_rl.train.verl.settings import TrainerMode

STEPS, EVALUATE_EVERY, SEEDS = 10, 5, (1, 2, 3)
MODES = (TrainerMode.SYNC, TrainerMode.SEPARATE_ASYNC)
SETTINGS = (
    *(f"run.steps={STEPS}", f"verl.trainer.save_freq={STEPS}", f"verl.trainer.test_freq={EVALUATE_EVERY}"),
    *(f"verl.{RATE}=2e-4", "batch.prompts=8", "batch.mini_batch=4", "budget.prompt_tokens=256"),
    *("method=saar+roc", "roc.sample=12", "roc.min_positive=1", "roc.min_negative=1"),
    *(f"verl.{MICRO_BATCH}=8", "verl.trainer.n_gpus_per_node=1", "run.router=verl"),
)
LIMIT_SECONDS = 2_400
STALENESS = "training/off_policy/trajectory_staleness/mean"


def run(world: Path, runs: Path, mode: TrainerMode, seed: int) -> Path:
    """Train once, if that hasn't been done, and return the run's folder."""
    folder = runs / f"{mode}-{seed}"
    made = folder / "tiny-cpu"
    if (made / "checkpoints" / f"global_step_{STEPS}").exists():
        return made
    return train(world, folder, (*SETTINGS, f"verl.trainer.v1.trainer_mode={mode}", f"seed={seed}"), LIMIT_SECONDS)


def figures(run: Path) -> dict[str, Any]:
    """Return what is told of a run."""
    steps = [line["data"] for line in read_lines(run / "verl-0.jsonl") if "timing_s/step" in line["data"]]
    ours = [line["metrics"] for line in read_lines(run / "metrics.jsonl")]
    return {
        "accuracy": {str(step): round(each["accuracy"], 4) for step, each in sorted(evaluations(run).items())},
        # A mean: in `separate_async` a step that had to wait for rollouts is followed by one that finds them ready.
        "seconds_per_step": round(fmean(each["timing_s/step"] for each in steps), 2),
        "staleness": round(fmean(each.get(STALENESS, 0.0) for each in steps), 3),
        "faults": int(sum(each["faults"] for each in ours)),
        "repaired": round(fmean(each["repaired"] for each in ours), 3),
    }


def measure(world: Path, runs: Path) -> dict[str, Any]:
    """Train every seed in both modes, one after the other."""
    found: dict[str, Any] = {}
    for seed in SEEDS:
        for mode in MODES:
            found[f"{mode}-{seed}"] = figures(run(world, runs, mode, seed))
    last = {mode: [found[f"{mode}-{seed}"]["accuracy"][str(STEPS)] for seed in SEEDS] for mode in MODES}
    return {
        "steps": STEPS,
        "runs": found,
        "accuracy_differences": [round(late - sync, 4) for sync, late in zip(*last.values(), strict=True)],
        "seconds_ratio": round(
            median(
                found[f"{MODES[1]}-{seed}"]["seconds_per_step"] / found[f"{MODES[0]}-{seed}"]["seconds_per_step"]
                for seed in SEEDS
            ),
            2,
        ),
    }


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("world", type=Path, metavar="FOLDER")
    parser.add_argument("--runs", type=Path, default=Path("/var/tmp/cleaner-rl-modes"), help="not below /tmp")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--save", type=Path)
    given = parser.parse_args()
    found = measure(given.world.resolve(), given.runs.resolve())
    if given.save is not None:
        save(given.save, found, {"settings": [*SETTINGS], "world": given.world.name})
    print(json.dumps(found) if given.json else json.dumps(found, indent=2))


if __name__ == "__main__":
    main()

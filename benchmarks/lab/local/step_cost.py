"""What a step of SmolLM2 costs, and how much less with frozen layers and with products in bfloat16.

`python -m benchmarks.lab.local.step_cost --json --save benchmarks/results/lab_step.json`, in the engine environment.
One GRPO step each, on the same prompts and from the same cold start, on one thread. CPU time of the trainer's process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.lab.environments import REAL
from benchmarks.lab.local.margins import REAL_RATE
from benchmarks.lab.local.methods import GRPO
from benchmarks.lab.local.runs import WorldRun
from benchmarks.lab.local.trainer import LocalTrainer
from benchmarks.lab.local.worlds import DEVELOPMENT, SMOLLM, World
from benchmarks.record import save
from cleaner_rl.train import Recipe

WAYS = {
    "all layers trained, float32": (0, torch.float32),
    f"{SMOLLM.frozen} layers frozen, float32": (SMOLLM.frozen, torch.float32),
    f"{SMOLLM.frozen} layers frozen, bfloat16": (SMOLLM.frozen, torch.bfloat16),
}


def measured(recipe: Recipe) -> dict[str, dict[str, float]]:
    """Take one step in each way, and return its CPU seconds and its sampled tokens."""
    found = {}
    for name, (frozen, dtype) in WAYS.items():
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:  # runs of the sandbox can't see /tmp
            run, tasks = replace(recipe.run, folder=folder), replace(recipe.tasks, held_out=[])
            trainer = LocalTrainer(replace(recipe, run=run, tasks=tasks), frozen=frozen, dtype=dtype)
            asyncio.run(trainer.train(lambda _: None))
        cost = trainer.costs[1]
        found[name] = {"cpu_seconds": round(cost.cpu_seconds, 1), "sampled_tokens": cost.sampled}
    return found


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--save", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    world = World(REAL, DEVELOPMENT[0])
    world.make()
    figures = measured(WorldRun(world, GRPO, REAL_RATE).recipe(steps=1))
    if given.save:
        save(given.save, figures, {"world": world.name})
    if given.json:
        print(json.dumps(figures, indent=2))
    else:
        for name, each in figures.items():
            print(f"{name}: {each['cpu_seconds']} CPU s, {each['sampled_tokens']} tokens sampled")


if __name__ == "__main__":
    main()

"""Trains the model on tasks in a shell, in the lab's local backend: `python -m benchmarks.shell.local --json`

Each method starts with the same model and is evaluated before and after training, on tasks of another seed, at
temperature 1 with repair off.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.lab.environments import lab_folder
from benchmarks.lab.reading import evaluations
from benchmarks.lab.recipes import SHARED, laid
from benchmarks.record import save
from benchmarks.shell.lessons import PROMPT, PROMPT_FILE, make
from benchmarks.shell.tasks import HELD_OUT, TRAINED_ON, library_tasks
from benchmarks.toy.folder import AGENT
from cleaner_rl.tasks import write_verl
from cleaner_rl.train import Recipe, to_recipe

RESULTS = Path(__file__).parents[1] / "results" / "shell_local.json"
TRAIN_TASKS, HELD_OUT_TASKS = 512, 160
METHODS: Mapping[str, Mapping[str, Any]] = {
    "grpo": {},
    "hindsight": {"purify": {"scope": "successful"}},
}
SHELL: Mapping[str, Any] = {
    "budget": {"prompt_tokens": 128, "turns": 4},
    # A command starts programs, which takes longer than a call of the lab's library.
    "sandbox": {"environment": "science", "cpu_seconds": 2.0},
}
"""What differs from the lab's other environments: four turns, meant for three calls and an answer."""


def recipe(model: Path, method: str, steps: int) -> Recipe:
    """Return a method's recipe; writes its tasks into the folder of the runs."""
    folder = lab_folder() / "shell"
    folder.mkdir(parents=True, exist_ok=True)
    write_verl(folder / "train.parquet", library_tasks(TRAINED_ON, TRAIN_TASKS), PROMPT, AGENT)
    write_verl(folder / "held_out.parquet", library_tasks(HELD_OUT, HELD_OUT_TASKS), PROMPT, AGENT)
    values = {
        "name": f"shell-{method}",
        "method": method,
        "model": {"path": str(model.absolute())},
        "tasks": {
            "train": [str(folder / "train.parquet")],
            "held_out": [str(folder / "held_out.parquet")],
            "prompt": str(PROMPT_FILE),
        },
        "run": {"steps": steps, "folder": str(folder)},
        "verl": {"trainer.save_freq": steps, "trainer.test_freq": steps},
    }
    return to_recipe(laid(values, SHARED, SHELL, METHODS[method]))


def measure(steps: int) -> dict[str, dict[str, float]]:
    """Train with each method, and return the figures of its last evaluation; the first one is shared."""
    import torch

    from benchmarks.lab.local.trainer import LocalTrainer

    torch.set_num_threads(1)
    model = make()
    found: dict[str, dict[str, float]] = {}
    for method in METHODS:
        trainer = LocalTrainer(recipe(model, method, steps))
        asyncio.run(trainer.train(partial(print, f"{method},", file=sys.stderr)))
        curve = evaluations(trainer.folder)
        found |= {"before": curve[0], method: curve[steps]}
        shutil.rmtree(trainer.folder)
    return found


def main() -> None:
    """Train, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--json", action="store_true", help="print one object")
    parser.add_argument("--save", type=Path, nargs="?", const=RESULTS, help="keep the figures, with commit and machine")
    arguments = parser.parse_args()
    found = measure(arguments.steps)
    if arguments.save:
        save(arguments.save, found, {"steps": arguments.steps})
    if arguments.json:
        print(json.dumps(found))
    else:
        for name, each in found.items():
            print(f"{name:10} accuracy {each['accuracy']:.1%}, failed calls per trajectory {each['errors']:.2f}")


if __name__ == "__main__":
    main()

"""The lab's trainer in one process: its loss beside the definition, and a run that is broken off and goes on."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from cleaner_rl.train import to_recipe
from cleaner_rl.train.recipe.settings import Recipe, UpdateSettings
from cleaner_rl.train.rows import RowConfig, group_rows, to_row
from cleaner_rl.trajectory import Phase
from cleaner_rl.trajectory.store import read
from tests.train.parity import CLIP_HIGH, CLIP_LOW, batch, gradient, reference_loss, rows, tiny_model


def test_the_loss_and_its_gradient_are_those_of_the_definition() -> None:
    import torch

    from benchmarks.lab.local import clipped_loss

    made, model = rows(batch()), tiny_model()
    expected = reference_loss(model, made, [row.advantage or 0.0 for row in made])
    total = sum(row.weight * float(row.loss_mask.sum()) for row in made)
    loss = clipped_loss(model, made, UpdateSettings(clip_low=CLIP_LOW, clip_high=CLIP_HIGH)) / total
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(gradient(model, loss), gradient(model, expected), rtol=1e-6, atol=1e-12)


def test_mini_batches_hold_whole_groups() -> None:
    from benchmarks.lab.local import parts

    groups = [group_rows(group, RowConfig()) for group in batch()]
    assert [len(part) for part in parts(groups * 4, 2)] == [4, 4]


def recipe(world: Path, folder: Path, steps: int) -> Recipe:
    values: dict[str, Any] = {
        "name": "local",
        "method": "hindsight",
        "model": {"path": str(world / "model"), "dtype": "float32"},
        "tasks": {
            "train": [str(world / "train.parquet")],
            "held_out": [str(world / "train.parquet")],
            "prompt": str(world / "prompt.toml"),
        },
        "budget": {"prompt_tokens": 256, "response_tokens": 512, "turns": 4},
        "batch": {"prompts": 4, "mini_batch": 2, "rollouts": 4, "micro_batch": 4, "dynamic_sampling": False},
        "update": {"lr": 1e-3, "warmup_steps": 0, "overlong_buffer": 0},
        "sandbox": {"packages": ["kit"], "site": str(world / "site"), "cpu_seconds": 0.2, "memory_mb": 256, "slots": 2},
        "device": {"kind": "cpu", "per_node": 1, "workers": 1},
        "run": {"steps": steps, "save_every": 1, "evaluate_every": 2, "folder": str(folder)},
    }
    return to_recipe(values)


@pytest.mark.timeout(300)
def test_a_run_that_is_broken_off_goes_on_with_the_next_tasks() -> None:
    import torch

    from benchmarks.lab.local import LocalTrainer
    from benchmarks.toy.smallest import make

    torch.set_num_threads(1)
    with TemporaryDirectory(dir="/var/tmp") as folder:  # runs of the sandbox can't see /tmp
        home = Path(folder)
        world = make(home / "world")
        for name, steps in (("whole", 2), ("parts", 1), ("parts", 2)):
            asyncio.run(LocalTrainer(recipe(world, home / name, steps)).train())
        whole, parts = (list(read(home / name / "local" / "trajectories")) for name in ("whole", "parts"))
        metrics = [json.loads(line) for line in (home / "parts" / "local" / "metrics.jsonl").read_text().splitlines()]
    training = [each for each in parts if each.key.phase is Phase.TRAINING]
    assert {each.key for each in training} == {each.key for each in whole if each.key.phase is Phase.TRAINING}
    assert len(training) == 2 * 4 * 4
    assert any(each.edits for each in training)
    assert all(to_row(each) is not None for each in training)  # type: ignore[arg-type]
    assert [line["step"] for line in metrics] == [1, 2]
    assert {each.key.step for each in parts if each.key.phase is Phase.EVALUATION} == {0, 1, 2}

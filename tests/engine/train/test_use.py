"""From a run to a model in use: train with LoRA, serve two checkpoints, evaluate them as the run did, compare them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from safetensors import safe_open

from benchmarks.serving import serve
from cleaner_rl.cli import main
from cleaner_rl.evaluate import Repair, read_results
from tests.engine.train.runs import cleaner_train

STEPS = (2, 4)
TASKS = 12


@pytest.mark.timeout(2_400)
def test_a_runs_checkpoints_are_merged_served_judged_and_compared(world: Path, tmp_path: Path) -> None:
    run = cleaner_train(
        world,
        tmp_path,
        [
            *("method=hindsight", f"run.steps={STEPS[1]}", f"verl.trainer.save_freq={STEPS[0]}", "run.router=verl"),
            *(f"tasks.held_out=[{world / 'train.parquet'}]", "verl.trainer.test_freq=-1"),
            *("verl.trainer.val_before_train=false", "verl.trainer.n_gpus_per_node=1", "sandbox.memory_mb=320"),
            *("verl.actor_rollout_ref.model.lora_rank=8", "verl.actor_rollout_ref.model.lora_alpha=16"),
        ],
    )
    for step in STEPS:
        model = run / "checkpoints" / f"global_step_{step}" / "actor" / "huggingface"
        with safe_open(model / "model.safetensors", "numpy") as file:
            assert not [name for name in file.keys() if "lora" in name], "adapters are merged"  # noqa: SIM118 - no mapping
        assert json.loads((model / "config.json").read_text())["dtype"] == "float32"
        with serve(model, tmp_path, record=False) as served:
            how = ["--samples", "1", "--repair", "off", "--recovery", "0", "--limit", str(TASKS), "--concurrency", "4"]
            where = [
                "--run",
                str(run),
                "--step",
                str(step),
                "--url",
                served.url,
                "--out",
                str(tmp_path / f"eval-{step}"),
            ]
            shown = CliRunner().invoke(main, ["eval", *where, *how])
            assert shown.exit_code == 0, shown.output
            assert "calls failed; the most frequent errors: " in shown.output
        found = read_results(tmp_path / f"eval-{step}")
        judged = found.sets[0].runs[Repair.OFF]
        assert not judged.faults
        assert len(judged.problems) == TASKS
        assert found.settings["memory_mb"] == 320

    shown = CliRunner().invoke(main, ["compare", *(str(tmp_path / f"eval-{step}") for step in STEPS), "--json"])
    assert shown.exit_code == 0, shown.output
    compared = json.loads(shown.stdout)
    assert [compared["before"], compared["after"]] == [f"tiny-cpu-step-{step}" for step in STEPS]
    assert compared["notes"] == [], "they differ in the model alone"

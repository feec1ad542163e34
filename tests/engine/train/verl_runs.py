"""Runs of verl for tests: settings, and a process that is ended whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from cleaner_rl.train.overrides import CPU_ENVIRONMENT, as_arguments, overrides
from cleaner_rl.train.reading import to_recipe


def stock_settings(model: Path, folder: Path, steps: int) -> dict[str, object]:
    """verl's own GRPO with its own single-turn loop, on the settings that a recipe gives for a processor."""
    recipe = to_recipe(
        {
            "name": "stock",
            "method": "dapo",
            "model": {"path": str(model), "dtype": "float32"},
            "tasks": {"train": [str(_rows(folder))]},
            "budget": {"prompt_tokens": 64, "response_tokens": 32},
            "batch": {"prompts": 4, "mini_batch": 4, "rollouts": 4, "micro_batch": 4, "dynamic_sampling": False},
            "update": {"lr": 1e-3, "warmup_steps": 0, "overlong_buffer": 0},
            "device": {"kind": "cpu", "per_node": 1, "workers": 1},
            "run": {"steps": steps, "save_every": 0},
        }
    )
    ours = ("agent.default_agent_loop", "agent_loop_config_path", "agent_loop_manager_class", "v1.sampler")
    settings = {key: value for key, value in overrides(recipe, folder).items() if not any(part in key for part in ours)}
    (folder / "reward.py").write_text("def compute_score(solution_str, **_): return len(solution_str) % 7 / 7\n")
    return {**settings, "reward.custom_reward_function.path": str(folder / "reward.py")}


def run_verl(settings: dict[str, object], folder: Path, seconds: int) -> str:
    """What a run of verl printed. It and all its processes are ended after `seconds`."""
    environment = {**os.environ, **CPU_ENVIRONMENT, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    # Ray's sockets need a short path.
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as temporary:
        own = [f"hydra.run.dir={folder}", "hydra.output_subdir=null"]
        arguments = [*own, *as_arguments(settings), f"+ray_kwargs.ray_init._temp_dir={temporary}"]
        with (folder / "log").open("w+") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "verl.trainer.main_ppo", *arguments],
                env={**environment, "RAY_TMPDIR": temporary},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = process.wait(seconds)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            log.seek(0)
            text = log.read()
    assert code == 0, text[-5_000:]
    return text


def _rows(folder: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [
        {
            "data_source": "sums",
            "prompt": [{"role": "user", "content": f"add {number} and {number + 1}"}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": str(2 * number + 1)},
            "extra_info": {"index": number, "split": "train"},
        }
        for number in range(16)
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "rows.parquet")
    return folder / "rows.parquet"

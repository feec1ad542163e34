"""Loggers of verl's, each started for real: what they write is in the run's folder, and nowhere else.

They are no dependency of ours. To run this: `pip install tensorboard wandb trackio` beside verl.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from cleaner_rl.train import run_folder, to_recipe
from cleaner_rl.train.launch.start import _variables
from cleaner_rl.train.verl.overrides import overrides
from tests.train.recipes import ON_CPU, values

PROGRAM = """
import json, sys
from verl.utils.tracking import Tracking

project, name, logger = json.loads(sys.argv[1])
tracking = Tracking(project, name, [logger], config={"trainer": {}})
for step in (1, 2):
    tracking.log({"cleaner/solved_share": 0.5 * step, "actor/loss": 0.1}, step=step)
tracking.finish()
"""
WRITTEN = {
    "tensorboard": "tensorboard/**/events.out.tfevents.*",
    "wandb": "wandb/offline-run-*",
    "trackio": "trackio/*.db",
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("logger", WRITTEN)
def test_a_logger_writes_into_the_runs_folder(logger: str, tmp_path: Path) -> None:
    if find_spec(logger) is None:
        pytest.skip(f"{logger} is not installed beside verl")
    recipe = to_recipe(values(name="mine", run={"folder": str(tmp_path / "runs")}, verl=ON_CPU))
    folder, home = run_folder(recipe), tmp_path / "home"
    folder.mkdir(parents=True)
    home.mkdir()
    settings = overrides(recipe, folder)
    names = [settings["trainer.project_name"], settings["trainer.experiment_name"], logger]
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(names)],
        cwd=home,
        env={**_variables(recipe, folder), "HOME": str(home), "WANDB_MODE": "offline"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    found = list(folder.glob(WRITTEN[logger]))
    assert found, sorted(folder.rglob("*"))
    assert {each.name for each in folder.iterdir()} == {logger}
    assert not [each for each in home.iterdir() if not each.name.startswith(".")]
    if logger == "tensorboard":
        assert "/mine/" in f"{found[0]}/"

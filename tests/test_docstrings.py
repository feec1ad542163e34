"""The examples in docstrings run, and the entry points have one. Those that need an engine are marked to be skipped.

`packages/cleaner-sandbox/tests/test_examples.py` does the same for the sandbox's packages."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

from cleaner_rl import evaluate, logs, purify, replay, resample, rollout, tasks, tools, train, trajectory
from cleaner_rl.rollout import engines
from cleaner_rl.trajectory import store

ENTRY_POINTS = {
    "cleaner_rl.evaluate.comparison": (evaluate.compare,),
    "cleaner_rl.evaluate.run": (evaluate.evaluate, evaluate.load_plan),
    "cleaner_rl.logs.formats.messages": (logs.MessagesFormat,),
    "cleaner_rl.logs.messages": (logs.Dialect,),
    "cleaner_rl.logs.purification": (logs.purify,),
    "cleaner_rl.purify.hindsight": (purify.hindsight, purify.purify),
    "cleaner_rl.purify.rescore": (purify.rescore,),
    "cleaner_rl.purify.saar": (purify.repair,),
    "cleaner_rl.replay.verification": (replay.verify,),
    "cleaner_rl.resample.groups": (resample.group_of, resample.select),
    "cleaner_rl.rollout.engines.connect": (engines.connect,),
    "cleaner_rl.rollout.loop": (rollout.rollout,),
    "cleaner_rl.rollout.run_folder": (rollout.collect,),
    "cleaner_rl.rollout.runner": (rollout.open_runner, rollout.RolloutRunner, rollout.RolloutRunner.run),
    "cleaner_rl.tasks.datasets": (tasks.load_tasks,),
    "cleaner_rl.tasks.grading": (tasks.grade,),
    "cleaner_rl.tasks.prompts": (tasks.load_prompt,),
    "cleaner_rl.tools.feedback": (tools.feedback,),
    "cleaner_rl.tools.json_values": (tools.read_json,),
    "cleaner_rl.train.launch.start": (train.check, train.train),
    "cleaner_rl.train.recipe.load": (train.read_recipe,),
    "cleaner_rl.trajectory.edits": (trajectory.undo,),
    "cleaner_rl.trajectory.store.reading": (store.read,),
}


@pytest.mark.parametrize("module", ENTRY_POINTS)
def test_examples_run(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[1])  # examples name recipes as in a checkout
    for each in ENTRY_POINTS[module]:
        assert "Example" in (each.__doc__ or ""), each
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted
    assert not found.failed

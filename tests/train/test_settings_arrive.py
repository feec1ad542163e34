"""Every key of a recipe arrives: changing it changes something that a run is made of."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

import pytest

from cleaner_rl.rollout import ChatError
from cleaner_rl.train import Recipe, run_folder, to_recipe, to_values
from cleaner_rl.train.launch.cold_start import cold_start_command
from cleaner_rl.train.launch.node import node_config
from cleaner_rl.train.launch.start import command, parts, sandbox
from cleaner_rl.train.recipe.stages import PassRate, _within
from cleaner_rl.train.record import StepRecord, TooManyFaultsError
from cleaner_rl.train.verl import runner
from cleaner_rl.train.verl.overrides import environment
from cleaner_rl.train.verl.plan import RunPlan, agent_loops, router_file
from cleaner_rl.trajectory import Phase
from tests.builders import answered, failed, worked
from tests.rollout.chats import tokenizer
from tests.train.test_rows import collapsed, graded, rescored

ELSEWHERE = {"faults.stall_minutes": "the sampler reads it in verl's process (tests/engine/train/test_sampler.py)"}
"""Keys that change nothing here, each with the reason."""
RAW, REPAIRED = graded(failed(), worked(), answered()), rescored(collapsed())
LENGTH = min(len(each) - len(each.prompt) for each in (RAW, REPAIRED))
BASE: dict[str, Any] = {
    "name": "example",
    "method": "saar+roc",
    "model": {"path": "some/model"},
    "tasks": {"train": ["train.parquet"], "held_out": ["test.parquet"]},
    "budget": {"response_tokens": LENGTH + 5, "overlong_buffer": 10},
    "batch": {"prompts": 4, "mini_batch": 2},
    "sandbox": {"environment": "bare"},
    "cold_start": {"data.train_files": ["sft.parquet"]},
    "verl": {"actor_rollout_ref.rollout.dtype": "float32"},
    "stages": [],
}
FOR: Mapping[str, dict[str, Any]] = {
    "purify.mass": {"method": "hindsight"},
    "purify.views": {"method": "hindsight"},  # a method without a view as it was sampled has one view
    "rescue.": {"method": "saar", "rescue": {}},  # RoC has one more rollout to select from, whatever rescue.rows is
    "faults.min_rollouts": {"method": "saar"},  # with RoC it is batch.rollouts
    "stages.": {"stages": [{"name": "first", "steps": 1}]},
}
"""What the base needs in addition, for keys that begin so."""
VALUES: Mapping[str, Any] = {
    "method": "roc",
    "tasks.prompt": "session",
    "batch.prompts": 8,
    "batch.mini_batch": 4,
    "purify.measure": "ast",
    "purify.schedule": [[1, 0.5]],
    "purify.max_logprob_gap": 0.5,
    "purify.views": "one",
    "purify.mass": 0.5,
    "tasks.graders": {"answer": 2.0},
    "cold_start": {"data.train_files": ["sft.parquet"], "optim.lr": 1e-4},
    "faults.max_share": 1.0,
    "sandbox.environment": "data",
    "sandbox.environments": ["data"],
    "stages.response_tokens": LENGTH + 6,
    "stages.max_pass_rate": 0.2,
    "stages.min_pass_rate": 0.8,
    "verl": {"trainer.balance_batch": False},
}
"""Values for keys where not every value is allowed."""


def keys(kind: type = Recipe, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Each key of a recipe with its type; a section isn't one itself."""
    hints = get_type_hints(kind)
    for each in fields(kind):
        hint = hints[each.name]
        section = next((part for part in (hint, *get_args(hint)) if is_dataclass(part)), None)
        if isinstance(section, type):
            yield from keys(section, f"{prefix}{each.name}.")
        else:
            yield f"{prefix}{each.name}", hint


def another(value: Any, hint: Any) -> Any:
    """A value that isn't `value`."""
    kinds = [kind for kind in (hint, *get_args(hint)) if isinstance(kind, type) and kind is not NoneType]
    if kinds and issubclass(kinds[0], StrEnum):
        return next(choice for choice in kinds[0] if choice != value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value / 2 or 0.5
    if isinstance(value, str):
        return "other"
    return ["other"] if isinstance(value, list) else {"other": 1}


def changed(key: str, hint: Any, folder: Path) -> tuple[Recipe, Recipe]:
    """A recipe, and the same with another value of one key."""
    values = copy.deepcopy(BASE)
    for prefix, needed in FOR.items():
        values |= copy.deepcopy(needed) if key.startswith(prefix) else {}
    before = to_recipe(values)
    full = to_values(before)
    *sections, last = key.split(".")
    held: Any = full
    for section in sections:
        held = held[section][0] if isinstance(held[section], list) else held[section]
    if key == "sandbox.token_file":
        (folder / "token").write_text("secret")
        held[last] = str(folder / "token")
    else:
        held[last] = VALUES.get(key) or another(held[last], hint)
    return before, to_recipe(full)


def made_of(recipe: Recipe, folder: Path) -> dict[str, object]:
    """All that a run is made of, as far as it is known without verl."""
    RunPlan(recipe, (), folder).write()
    stages = [[_within(PassRate(right, 2), stage) for right in range(3)] for stage in recipe.stages]
    shared: Any = runner.runner_of(recipe, tokenizer("qwen3"), object(), object())  # type: ignore[arg-type]
    return {
        "verl": parts(recipe),
        "command": command(recipe, folder),
        "cold start": cold_start_command(recipe, folder),
        "environment": environment(recipe),
        "folder": run_folder(recipe),
        "loop": agent_loops(folder).read_text(),
        "router": router_file(folder).read_text(),
        "stages": stages,
        "node": node_config(recipe.sandbox),
        "addresses": addresses(recipe, folder),
        "token": runner.read_token(recipe.sandbox.token_file),
        "prompt": shared.prompt.name,
        "reward": (shared.scale, shared.weights),
        "budget": [runner.budget_of(recipe, phase) for phase in Phase],
        "purifier": [runner.purifier_of(recipe, phase) for phase in Phase],
        "rescue": [runner.rescue_of(recipe, phase) for phase in Phase],
        "groups": (recipe.sampled, recipe.smallest_group, recipe.group_config()),
        "rows": recipe.row_config(),
        "rewards": [recipe.overlong().shape(each).reward for each in (RAW, REPAIRED)],
        "stops at faults": stops(recipe, folder),
    }


def addresses(recipe: Recipe, folder: Path) -> list[str]:
    """The sandbox that the run would use; none: a node of its own, which isn't started here."""
    if not recipe.sandbox.addresses:
        return []
    with sandbox(recipe, folder) as found:
        return list(found)


def stops(recipe: Recipe, folder: Path) -> bool:
    """Whether an evaluation in which everything broke ends the run."""
    try:
        StepRecord(folder, recipe.step_config()).evaluated([], 1)
    except TooManyFaultsError:
        return True
    return False


@pytest.fixture(autouse=True)
def _without_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "MathPool", object)
    monkeypatch.setattr(runner, "standard_graders", lambda *_: {})


@pytest.mark.parametrize(("key", "hint"), list(keys()), ids=[key for key, _ in keys()])
def test_a_setting_arrives(key: str, hint: Any, tmp_path: Path) -> None:
    before, after = changed(key, hint, tmp_path)
    assert before != after
    old = made_of(before, tmp_path)
    if key == "model.renderer":  # a template that nobody has: the run is refused with its name
        with pytest.raises(ChatError, match="'other'"):
            made_of(after, tmp_path)
        return
    new = made_of(after, tmp_path)
    arrived = [place for place in old if old[place] != new[place]]
    assert bool(arrived) != (key in ELSEWHERE), f"{key} arrives in {arrived or 'nothing'}"


def test_what_arrives_elsewhere_is_a_key() -> None:
    assert set(ELSEWHERE) <= {key for key, _ in keys()}

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cleaner_rl.tasks import Message, Task, load_prompt, write_verl
from cleaner_rl.train.launch.checks import (
    check_backend,
    check_lora,
    check_model,
    check_prompt,
    check_prompts,
    check_rows,
    check_tasks,
    config_at_hand,
)
from cleaner_rl.train.launch.machine import check_cores
from cleaner_rl.train.recipe.load import to_recipe
from cleaner_rl.train.recipe.settings import RecipeError
from cleaner_rl.train.verl.overrides import overrides
from tests.train.recipes import values


def test_prompts_without_room_are_counted_before_anything_starts(tmp_path: Path) -> None:
    words = {"short": "a" * 10, "long": "b " * 300, "longest": "c " * 310, "dense": "d" * 900}
    tasks = [Task(name, (Message("user", text),), "math", "1") for name, text in words.items()]
    write_verl(tmp_path / "tasks.parquet", tasks, load_prompt("stateless"), "cleaner")
    rendered = []

    def tokens(messages: Sequence[Message]) -> int:
        rendered.append(messages[-1].content)
        return sum(len(each.content.split()) for each in messages)

    frame = tokens(load_prompt("stateless").messages(tasks[0]))

    def check(room: int) -> None:
        files = {"train": [str(tmp_path / "tasks.parquet"), "hdfs://far/away.parquet"]}
        check_prompts(to_recipe(values(tasks=files, budget={"prompt_tokens": room})), tokens)

    with pytest.raises(RecipeError, match=rf"^2 tasks .*longest.* {frame + 309}\b"):
        check(frame + 100)
    check(frame + 309)
    rendered.clear()
    check(frame + 2_000)
    assert len(rendered) == 1, "what can't be too long isn't rendered"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"actor_rollout_ref": {"actor": {"strategy": "megatron"}}}, "trains with FSDP only"),
        ({"actor_rollout_ref.actor.strategy": "megatron"}, "trains with FSDP only"),
        ({"model_engine": "megatron"}, r"model_engine is megatron"),
    ],
)
def test_megatron_is_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(RecipeError, match=reason):
        check_backend(to_recipe(values(verl=settings)))


@pytest.mark.parametrize(
    ("model", "settings", "reason"),
    [
        ({}, {"actor_rollout_ref.model.lora_rank": 8}, "set model.lora.rank"),
        ({"lora": {}}, {"actor_rollout_ref": {"model": {"lora": {"merge": False}}}}, "merged before each transfer"),
    ],
)
def test_adapters_that_would_be_lost_are_refused(model: dict[str, Any], settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(RecipeError, match=reason):
        check_lora(to_recipe(values(model={"path": "m", **model}, verl=settings)))


def test_adapters_by_their_own_setting_are_accepted() -> None:
    check_lora(to_recipe(values()))
    check_lora(to_recipe(values(model={"path": "m", "lora": {"rank": 8}})))


@pytest.mark.parametrize(("kind", "backend"), [("cpu", "gloo"), ("gpu", "nccl")])
def test_separate_engines_have_machines_and_a_way_for_the_weights(kind: str, backend: str, tmp_path: Path) -> None:
    dtype = {"cpu": "float32", "gpu": "bfloat16"}[kind]
    device = {"kind": kind, "mode": "separate_async", "nodes": 2, "per_node": 4, "engine_nodes": 3}
    model = {"path": "some/model", "dtype": dtype}
    recipe = to_recipe(values(model=model, device=device, batch={"prompts": 128, "mini_batch": 32}))
    check_backend(recipe)
    settings, rollout = overrides(recipe, tmp_path), "actor_rollout_ref.rollout"
    assert settings[f"{rollout}.checkpoint_engine.backend"] == backend
    assert (settings[f"{rollout}.nnodes"], settings[f"{rollout}.n_gpus_per_node"]) == (3, 4)
    assert settings["trainer.v1.separate_async.parameter_sync_step"] == 4
    if kind == "cpu":
        assert settings["+ray_kwargs.ray_init.num_gpus"] == 20
    own = {"trainer.v1.separate_async.parameter_sync_step": 2}
    with pytest.raises(RecipeError, match="2 updates per step"):
        check_backend(to_recipe(values(model=model, device=device, batch={"prompts": 128, "mini_batch": 32}, verl=own)))


def test_a_prompt_that_doesnt_exist_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"tasks.prompt is 'statless'"):
        check_prompt(to_recipe(values(tasks={"train": ["a.parquet"], "prompt": "statless"})))


def test_tasks_that_cant_be_graded_are_named_before_anything_starts(tmp_path: Path) -> None:
    tasks = [Task(f"t/{number}", (Message("user", "?"),), "math", "1") for number in range(3)]
    tasks[1] = replace(tasks[1], grader="maths")
    write_verl(tmp_path / "tasks.parquet", tasks, load_prompt("stateless"), "cleaner")
    with pytest.raises(RecipeError, match=r"1 task can't be graded:\n- there is no grader 'maths'.*'t/1'"):
        check_tasks(to_recipe(values(tasks={"train": [str(tmp_path / "tasks.parquet")]})))


def test_a_file_that_holds_no_tasks_is_named(tmp_path: Path) -> None:
    (tmp_path / "tasks.parquet").write_text("no parquet")
    recipe = to_recipe(values(tasks={"train": [str(tmp_path / "tasks.parquet")]}))
    with pytest.raises(RecipeError, match=r"tasks.parquet"):
        check_tasks(recipe)
    with pytest.raises(RecipeError, match=r"tasks.train can't be read as Parquet"):
        check_rows(recipe)


def test_a_replica_that_cant_divide_the_models_heads_is_refused() -> None:
    recipe = to_recipe(values(device={"tensor_parallel": 8}))
    check_model(recipe, {"num_attention_heads": 32})
    with pytest.raises(RecipeError, match="doesn't divide the 14 attention heads of some/model"):
        check_model(recipe, {"num_attention_heads": 14})


def test_a_models_configuration_is_read_where_it_is_at_hand(tmp_path: Path) -> None:
    assert config_at_hand(str(tmp_path)) is None
    (tmp_path / "config.json").write_text('{"text_config": {"max_position_embeddings": 7}}')
    assert config_at_hand(str(tmp_path)) == {"max_position_embeddings": 7}
    assert config_at_hand("nobody/such-a-model") is None


@pytest.mark.parametrize(("per_node", "needed"), [(1, 7), (4, 16)])
def test_too_few_cores_are_told_and_not_waited_for(per_node: int, needed: int) -> None:
    recipe = to_recipe(values(device={"per_node": per_node}))
    check_cores(recipe, needed)
    with pytest.raises(RecipeError, match=rf"verl reserves {needed} cores .* Ray counts {needed - 1} here"):
        check_cores(recipe, needed - 1)
    check_cores(to_recipe(values(device={"per_node": per_node}, verl={"ray_kwargs.ray_init.num_cpus": needed})), 2)

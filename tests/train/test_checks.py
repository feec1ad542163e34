from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cleaner_rl.tasks import Message, Task, load_prompt, write_verl
from cleaner_rl.train.launch.checks import (
    check_backend,
    check_engine,
    check_exactness,
    check_lora,
    check_method,
    check_model,
    check_prompt,
    check_prompts,
    check_rows,
    check_settings,
    check_tasks,
    config_at_hand,
)
from cleaner_rl.train.launch.machine import check_cores
from cleaner_rl.train.recipe.load import to_recipe
from cleaner_rl.train.recipe.settings import RecipeError
from cleaner_rl.train.verl.overrides import overrides
from cleaner_rl.train.verl.settings import ACTOR, ROLLOUT
from tests.train.recipes import ON_CPU, values


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
    ("settings", "reason"),
    [
        ({f"{ROLLOUT}.temperature": 0.7}, "engine scores at temperature 1 and top-p 1 only"),
        ({ROLLOUT: {"top_p": 0.9}}, "top_p is 0.9"),
        ({f"{ROLLOUT}.temperature": "warm"}, "it must be a number"),
        ({f"{ROLLOUT}.name": "sglang", **ON_CPU}, "on a cpu it can be vllm"),
        ({**ON_CPU, f"{ROLLOUT}.dtype": "bfloat16"}, "dtype must be float32 on a cpu"),
        ({f"{ROLLOUT}.dtype": "half"}, r"rollout\.dtype is 'half': invalid enum value"),
        ({"trainer.max_actor_ckpt_to_keep": 1}, "take 2 or more, or null"),
        (
            {f"{ROLLOUT}.tensor_model_parallel_size": 3},
            "doesn't divide trainer.n_gpus_per_node=8: take 1 or 2 or 4 or 8",
        ),
        (
            {f"{ROLLOUT}.tensor_model_parallel_size": 12, "trainer.nnodes": 2},
            "a divisor of 8, or a multiple of it that divides 16",
        ),
        ({f"{ROLLOUT}.agent.num_workers": 0}, r"num_workers is 0: expected `int` >= 1"),
    ],
)
def test_settings_of_verls_that_cant_be_run_are_refused_with_the_reason(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(RecipeError, match=reason):
        check_settings(to_recipe(values(verl=settings)))


def test_a_replica_may_span_machines() -> None:
    verl = {f"{ROLLOUT}.tensor_model_parallel_size": 16, "trainer.nnodes": 4}
    check_engine(to_recipe(values(verl=verl)))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"method": "dapo", "batch": {"dynamic_sampling": False}}, "set batch.dynamic_sampling=true, or"),
        ({"method": "dapo", "budget": {"overlong_buffer": 0}}, "set budget.overlong_buffer above 0"),
        ({"method": "dapo", "verl": {f"{ACTOR}.clip_ratio_high": 0.2}}, "clip_ratio_high above"),
        ({"method": "dapo", "verl": {f"{ACTOR}.loss_agg_mode": "seq-mean-token-mean"}}, "loss_agg_mode=token-mean"),
        ({"method": "grpo"}, "set batch.dynamic_sampling=false, or take method dapo"),
    ],
)
def test_dapo_is_the_name_of_all_of_its_parts(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(RecipeError, match=reason):
        check_method(to_recipe(values(**changes)))


def test_grafts_with_sampled_logprobs_need_weights_by_token() -> None:
    verl = {"algorithm": {"rollout_correction": {"rollout_is": "sequence"}}}
    with pytest.raises(RecipeError, match="take token, or rescored"):
        check_exactness(to_recipe(values(purify={"graft_logprobs": "sampled"}, verl=verl)))


def test_without_edits_any_temperature_will_do() -> None:
    check_exactness(to_recipe(values(method="roc", verl={f"{ROLLOUT}.temperature": 0.7})))


def test_adapters_that_would_be_lost_are_refused() -> None:
    adapters = {"actor_rollout_ref": {"model": {"lora_rank": 8, "lora_alpha": 16}}}
    check_lora(to_recipe(values()))
    check_lora(to_recipe(values(verl=adapters)))
    with pytest.raises(RecipeError, match="merged before each transfer"):
        check_lora(to_recipe(values(verl={**adapters, "actor_rollout_ref.model.lora.merge": False})))


@pytest.mark.parametrize(("kind", "backend"), [("cpu", "gloo"), ("gpu", "nccl")])
def test_separate_engines_have_machines_and_a_way_for_the_weights(kind: str, backend: str, tmp_path: Path) -> None:
    verl = {
        **(ON_CPU if kind == "cpu" else {}),
        "trainer": {"v1": {"trainer_mode": "separate_async"}, "nnodes": 2, "n_gpus_per_node": 4},
        f"{ROLLOUT}.nnodes": 3,
    }
    recipe = to_recipe(values(verl=verl, batch={"prompts": 128, "mini_batch": 32}))
    check_backend(recipe)
    settings, rollout = overrides(recipe, tmp_path), "actor_rollout_ref.rollout"
    assert settings[f"{rollout}.checkpoint_engine.backend"] == backend
    assert (settings[f"{rollout}.nnodes"], settings[f"{rollout}.n_gpus_per_node"]) == (3, 4)
    assert settings["trainer.v1.separate_async.parameter_sync_step"] == 4
    if kind == "cpu":
        assert settings["+ray_kwargs.ray_init.num_gpus"] == 20
    own = {"trainer.v1.separate_async.parameter_sync_step": 2}
    with pytest.raises(RecipeError, match="2 updates per step"):
        check_backend(to_recipe(values(batch={"prompts": 128, "mini_batch": 32}, verl={**verl, **own})))


def test_a_prompt_that_doesnt_exist_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"tasks.prompt is 'statless'"):
        check_prompt(to_recipe(values(tasks={"train": ["a.parquet"], "prompt": "statless"})))


def test_tasks_that_cant_be_graded_are_named_before_anything_starts(tmp_path: Path) -> None:
    tasks = [Task(f"t/{number}", (Message("user", "?"),), "math", "1") for number in range(3)]
    tasks[1] = replace(tasks[1], grader="maths")
    write_verl(tmp_path / "tasks.parquet", tasks, load_prompt("stateless"), "cleaner")
    with pytest.raises(RecipeError, match=r"1 task can't be graded:\n- there is no grader 'maths'.*'t/1'"):
        check_tasks(to_recipe(values(tasks={"train": [str(tmp_path / "tasks.parquet")]})))


@pytest.mark.parametrize(
    ("body", "said"),
    [("return None", "returned None for task 't/0'"), ("return {'acc': 1}", "returned None"), ("return 0.5", "")],
)
@pytest.mark.parametrize("by_verl", [True, False])
def test_a_reward_function_is_tried_before_anything_starts(body: str, said: str, by_verl: bool, tmp_path: Path) -> None:
    if not by_verl and "acc" in body:
        body, said = "return 'good'", "returned 'good'"
    task = Task("t/0", (Message("user", "?"),), "unknown" if by_verl else "math", "1")
    write_verl(tmp_path / "tasks.parquet", [task], load_prompt("stateless"), "cleaner")
    file = tmp_path / "rewards.py"
    arguments = "data_source, solution_str, ground_truth, extra_info" if by_verl else "task, text, rollout"
    file.write_text(f"def mine({arguments}):\n    {body}\n")
    own = {"reward.custom_reward_function.path": str(file), "reward.custom_reward_function.name": "mine"}
    tasks: dict[str, Any] = {"train": [str(tmp_path / "tasks.parquet")], "graders": {"answer": 1.0}}
    if not by_verl:
        tasks["graders"] = {"answer": 1.0, f"{file}:mine": 0.5}
    recipe = to_recipe(values(tasks=tasks, verl=own if by_verl else {}))
    with pytest.raises(RecipeError, match=said) if said else nullcontext():
        check_tasks(recipe)


def test_a_weight_without_a_grader_is_refused_before_anything_starts(tmp_path: Path) -> None:
    recipe = to_recipe(values(tasks={"train": [str(tmp_path / "none")], "graders": {"answer": 1.0, "formt": 0.1}}))
    with pytest.raises(RecipeError, match=r"no grader 'formt'.*'format'"):
        check_tasks(recipe)


def test_a_file_that_holds_no_tasks_is_named(tmp_path: Path) -> None:
    (tmp_path / "tasks.parquet").write_text("no parquet")
    recipe = to_recipe(values(tasks={"train": [str(tmp_path / "tasks.parquet")]}))
    with pytest.raises(RecipeError, match=r"tasks.parquet"):
        check_tasks(recipe)
    with pytest.raises(RecipeError, match=r"tasks.train can't be read as Parquet"):
        check_rows(recipe)


def test_a_replica_that_cant_divide_the_models_heads_is_refused() -> None:
    recipe = to_recipe(values(verl={f"{ROLLOUT}.tensor_model_parallel_size": 8}))
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
    recipe = to_recipe(values(verl={"trainer.n_gpus_per_node": per_node}))
    check_cores(recipe, needed)
    with pytest.raises(RecipeError, match=rf"verl reserves {needed} cores .* Ray counts {needed - 1} here"):
        check_cores(recipe, needed - 1)
    check_cores(to_recipe(values(verl={**recipe.verl, "ray_kwargs.ray_init.num_cpus": needed})), 2)

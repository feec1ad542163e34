"""What `CleanerRollouts` refuses, and what it says then; none of it needs TRL."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from cleaner_rl.purify import PurifyConfig, Views
from cleaner_rl.train.recipe.enums import Method
from cleaner_rl.train.trl import CleanerRollouts, TrlRefusedError
from cleaner_rl.train.trl.checks import IGNORED, check_groups, check_method, check_trainer, check_views


def reward(**_: Any) -> list[float]:
    return []


def trainer(**changes: Any) -> SimpleNamespace:
    arguments: dict[str, Any] = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": None, "repetition_penalty": 1.0}
    arguments |= {"vllm_mode": "colocate", "vllm_tensor_parallel_size": 1}
    arguments |= dict.fromkeys(IGNORED)
    values: dict[str, Any] = {"tools": None, "reward_funcs": [reward], "use_vllm": False}
    values |= {name: value for name, value in changes.items() if name not in arguments}
    arguments |= {name: value for name, value in changes.items() if name in arguments}
    return SimpleNamespace(args=SimpleNamespace(**arguments), **values)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"reward_funcs": [reward, print]},
        {"use_vllm": True},
        {"use_vllm": True, "vllm_mode": "server", "vllm_tensor_parallel_size": 2},
        {"use_vllm": True, "is_fsdp_enabled": True},
    ],
)
def test_an_ordinary_trainer_is_taken(changes: dict[str, Any]) -> None:
    check_trainer(trainer(**changes))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"tools": [print]}, "tools="),
        ({"environment_factories": {"": object}}, "environment_factory="),
        ({"reward_funcs": [reward, SimpleNamespace(parameters=list)]}, "reward_funcs"),
        ({"reward_funcs": [reward, print], "multi_objective_aggregation": "normalize_then_sum"}, "normalize_then_sum"),
        ({"temperature": 0.7}, "temperature=0.7"),
        ({"top_k": 20}, "top_k=20"),
        ({"use_vllm": True, "top_p": 0.9}, "top_p=0.9"),
        ({"use_vllm": True, "vllm_tensor_parallel_size": 2}, "vllm_tensor_parallel_size=2"),
        ({"use_vllm": True, "vllm_structured_outputs_regex": "[0-9]+"}, "vllm_structured_outputs_regex="),
        ({"generation_kwargs": {"do_sample": False}}, "generation_kwargs="),
        ({"use_transformers_continuous_batching": True}, "use_transformers_continuous_batching="),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "template="),
        ({"is_deepspeed_enabled": True}, "DeepSpeed"),
        ({"is_fsdp_enabled": True}, "FSDP"),
    ],
)
def test_a_trainer_that_would_train_on_something_else_is_refused(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(TrlRefusedError) as refused:
        check_trainer(trainer(**changes))
    assert named in str(refused.value)


@pytest.mark.parametrize("prompts", [["a", "a", "b"], ["a", "b", "b", "a"]])
def test_a_group_that_is_split_is_refused(prompts: list[str]) -> None:
    with pytest.raises(TrlRefusedError, match="num_generations=2"):
        check_groups(prompts, 2)


def test_whole_groups_are_taken() -> None:
    check_groups(["a", "a", "b", "b"], 2)


@pytest.mark.parametrize("method", [Method.DAPO, Method.NO_TOOLS, Method.TWO_VIEWS_RESCUE])
def test_a_method_that_trl_has_no_place_for_is_refused(method: Method) -> None:
    with pytest.raises(TrlRefusedError, match=re.escape(method.value)):
        check_method(method)
    with pytest.raises(TrlRefusedError, match=re.escape(method.value)):
        CleanerRollouts(object(), method=method)


def test_a_mass_that_trl_has_no_place_for_is_refused() -> None:
    with pytest.raises(TrlRefusedError, match="TRL computes advantages itself"):
        check_views(PurifyConfig(views=Views.ONE, mass=2.0), Method.HINDSIGHT)


def test_a_bound_on_log_prob_gaps_that_would_refuse_every_repair_is_refused() -> None:
    with pytest.raises(TrlRefusedError, match="max_logprob_gap is 0"):
        CleanerRollouts(object(), purify=PurifyConfig(max_logprob_gap=0))

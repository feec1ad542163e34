"""Settings of verl's that would end a run after minutes: loggers, dynamic batches, devices that share sequences."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from cleaner_rl.train.launch import verl_checks
from cleaner_rl.train.launch.checks import check_model, check_settings
from cleaner_rl.train.launch.verl_checks import check_loggers
from cleaner_rl.train.recipe.load import to_recipe
from cleaner_rl.train.recipe.settings import Recipe, RecipeError
from tests.train.recipes import values

ACTOR, MODEL, REF, ROLLOUT = (f"actor_rollout_ref.{part}" for part in ("actor", "model", "ref", "rollout"))
SIZES = {"budget": {"prompt_tokens": 1_000, "response_tokens": 7_000}, "batch": {"prompts": 8, "mini_batch": 8}}
DYNAMIC, TOKENS = f"{ACTOR}.use_dynamic_bsz", f"{ACTOR}.ppo_max_token_len_per_gpu"
SHARED = f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size"


def recipe(**verl: object) -> Recipe:
    return to_recipe(values(**SIZES, verl={"trainer.n_gpus_per_node": 4, **verl}))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"trainer.logger": ["wandbb"]}, "names 'wandbb', which verl doesn't have: take some of console, file, tensor"),
        ({"trainer.logger": "tracking"}, "names 'tracking'"),
        ({DYNAMIC: True, TOKENS: 6_000}, "is 6000 tokens, fewer than .* = 8000: .* set at least 8000"),
        ({DYNAMIC: True, TOKENS: 3_000, SHARED: 2}, "x 2 devices .* is 3000|6000 tokens, .* set at least 4000"),
        ({DYNAMIC: True, TOKENS: 9_000, f"{ROLLOUT}.log_prob_max_token_len_per_gpu": 4_096}, "log_prob_.* is 4096"),
        (
            {f"{ACTOR}.kl_loss_coef": 0.1, f"{REF}.log_prob_use_dynamic_bsz": True, TOKENS: 4_000},
            r"ref\.log_prob_max_token_len_per_gpu is 4000",
        ),
        ({SHARED: 3}, "is 3, which doesn't divide the 4 devices"),
        ({f"{ACTOR}.ulysses_sequence_parallel_size": 8}, "is 8, which doesn't divide the 4 devices"),
        ({SHARED: 2, f"{MODEL}.use_remove_padding": False}, "without padding only"),
        ({TOKENS: "many", DYNAMIC: True}, "must be a number"),
    ],
)
def test_what_would_end_a_run_after_minutes_is_refused_by_a_dry_run(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(RecipeError, match=reason):
        check_settings(recipe(**settings))


@pytest.mark.parametrize(
    "settings",
    [
        {TOKENS: 6_000},
        {DYNAMIC: True},
        {DYNAMIC: True, TOKENS: 8_000},
        {DYNAMIC: True, TOKENS: 4_000, SHARED: 2},
        {f"{REF}.log_prob_use_dynamic_bsz": True, f"{REF}.log_prob_max_token_len_per_gpu": 1},
        {SHARED: 4},
    ],
    ids=["not dynamic", "as by default", "just enough", "shared by two", "no reference model", "all share"],
)
def test_what_runs_is_taken(settings: dict[str, Any]) -> None:
    check_settings(recipe(**settings))


@pytest.mark.parametrize(
    ("there", "refused"), [({"verl"}, True), ({"verl", "mlflow"}, False), (set(), False)], ids=["missing", "there", "-"]
)
def test_a_loggers_package_must_be_beside_verl(monkeypatch: Any, there: set[str], refused: bool) -> None:
    monkeypatch.setattr(verl_checks, "find_spec", lambda name: name if name in there else None)
    chosen = recipe(**{"trainer.logger": ["console", "mlflow"]})
    needs = "needs mlflow, which is not installed beside verl: pip install mlflow"
    with pytest.raises(RecipeError, match=needs) if refused else nullcontext():
        check_loggers(chosen)


@pytest.mark.parametrize(
    ("heads", "shared", "refused"), [(16, 8, False), (16, 2, False), (6, 6, True), (16, 6, True), (16, 1, False)]
)
def test_devices_that_share_a_sequence_share_the_models_heads(heads: int, shared: int, refused: bool) -> None:
    config = {"num_attention_heads": heads, "num_key_value_heads": shared}
    cant = f"can't share the {heads} attention heads and {shared} key-value heads"
    with pytest.raises(RecipeError, match=cant) if refused else nullcontext():
        check_model(recipe(**{SHARED: 4}), config)

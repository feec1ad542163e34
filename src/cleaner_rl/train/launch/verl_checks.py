"""Checks settings in verl's own words that end a run after minutes: when the first update begins, or a logger does."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from cleaner_rl.train.recipe.settings import Recipe, RecipeError, run_folder
from cleaner_rl.train.verl.overrides import number, overrides
from cleaner_rl.train.verl.settings import ACTOR, MODEL, REF, ROLLOUT, USE_KL, devices_of

LOGGERS: Mapping[str, str] = {
    "console": "",
    "file": "",
    "tensorboard": "tensorboard",
    "wandb": "wandb",
    "trackio": "trackio",
    "mlflow": "mlflow",
    "swanlab": "swanlab",
    "clearml": "clearml",
    "vemlp_wandb": "volcengine_ml_platform",
    "rl_insight": "rl_insight",
}
"""verl's loggers, each with the module that it imports."""
PARALLEL = (f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size", f"{ACTOR}.ulysses_sequence_parallel_size")
"""verl's two names of the devices that share a sequence; the second is the old one, which overrides the first."""
DYNAMIC, TOKENS = f"{ACTOR}.use_dynamic_bsz", f"{ACTOR}.ppo_max_token_len_per_gpu"


def check_loggers(recipe: Recipe) -> None:
    """Raise `RecipeError` for a logger that verl doesn't have, or whose package is missing where verl is installed."""
    named = overrides(recipe, run_folder(recipe))["trainer.logger"]
    assert isinstance(named, list)
    if unknown := [name for name in named if name not in LOGGERS]:
        raise RecipeError(
            f"verl.trainer.logger names {', '.join(map(repr, unknown))}, which verl doesn't have: "
            f"take some of {', '.join(LOGGERS)}"
        )
    missing = [LOGGERS[name] for name in named if LOGGERS[name] and find_spec(LOGGERS[name]) is None]
    if missing and find_spec("verl") is not None:
        raise RecipeError(
            f"verl.trainer.logger needs {', '.join(missing)}, which is not installed beside verl: pip install "
            f"{' '.join(missing)}, or take another logger"
        )


def sequence_parallel(settings: Mapping[str, object]) -> int:
    """Return how many devices share a sequence (Ulysses)."""
    return max(int(number({PARALLEL[0]: 1, PARALLEL[1]: 1, **settings}, key)) for key in PARALLEL)


def is_dynamic(settings: Mapping[str, object]) -> bool:
    """Return whether verl packs an update's sequences by their tokens (`use_dynamic_bsz`)."""
    return settings.get(DYNAMIC) is True


def check_sequences(recipe: Recipe) -> None:
    """Raise `RecipeError` if the longest sequence doesn't fit a dynamic batch, or devices can't share sequences."""
    settings, devices = overrides(recipe, run_folder(recipe)), devices_of(recipe)
    parallel = sequence_parallel(settings)
    if devices.count % parallel:
        raise RecipeError(
            f"verl.{PARALLEL[0]} is {parallel}, which doesn't divide the {devices.count} devices: take a divisor"
        )
    if parallel > 1 and settings.get(f"{MODEL}.use_remove_padding") is False:
        raise RecipeError(
            f"verl.{PARALLEL[0]} is {parallel}, and shares sequences without padding only: remove "
            f"verl.{MODEL}.use_remove_padding=false"
        )
    longest = recipe.budget.prompt_tokens + recipe.budget.response_tokens
    for role, prefix in {ACTOR: "ppo", ROLLOUT: "log_prob", REF: "log_prob"}.items():
        switch = DYNAMIC if role == ACTOR else f"{role}.log_prob_use_dynamic_bsz"
        if settings.get(switch, settings.get(DYNAMIC)) is not True or (role == REF and not settings[USE_KL]):
            continue
        key = f"{role}.{prefix}_max_token_len_per_gpu"
        most = number({key: settings.get(TOKENS, 16_384), **settings}, key) * parallel
        if most < longest:
            shared = f" x {parallel} devices that share a sequence" if parallel > 1 else ""
            raise RecipeError(
                f"verl.{key}{shared} is {most:g} tokens, fewer than budget.prompt_tokens + budget.response_tokens = "
                f"{longest}: with {switch} the longest sequence must fit; set at least {-(-longest // parallel)}"
            )


def check_heads(recipe: Recipe, config: Mapping[str, Any]) -> None:
    """Raise `RecipeError` if a model's attention heads can't be shared by the devices of a sequence."""
    parallel = sequence_parallel(overrides(recipe, run_folder(recipe)))
    heads = config.get("num_attention_heads", parallel)
    shared = config.get("num_key_value_heads", heads)
    if heads % parallel or (shared % parallel and parallel % shared):
        raise RecipeError(
            f"verl.{PARALLEL[0]} is {parallel}, which can't share the {heads} attention heads and {shared} key-value "
            f"heads of {recipe.model.path}: both must be divisible by it (or it by the latter)"
        )

"""Refuses settings of a `GRPOTrainer` under which its update would not be the one that was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cleaner_rl.purify import PurifyConfig, Views
from cleaner_rl.train.recipe.enums import Method

OFFERED = (
    Method.GRPO,
    Method.MASK,
    Method.HINDSIGHT,
    Method.SAAR,
    Method.ROC,
    Method.HINDSIGHT_ROC,
    Method.SAAR_ROC,
)
"""Methods that `CleanerRollouts` runs. Dynamic sampling, a part of DAPO, needs groups that TRL doesn't sample again."""
EXACT = {"temperature": (1.0,), "top_p": (1.0,), "top_k": (0, -1, None), "min_p": (0.0, None)}
EXACT |= {"repetition_penalty": (1.0,)}
"""Sampling settings, each with the values at which tokens are sampled from the model's own distribution."""

IGNORED = {
    "generation_kwargs": "leave it out",
    "vllm_structured_outputs_regex": "leave it out",
    "use_transformers_continuous_batching": "leave it out, or set use_vllm=True",
    "chat_template_kwargs": "give CleanerRollouts template= instead",
}
"""Settings of TRL's own sampling, each with what to do instead."""


class TrlRefusedError(ValueError):
    """A `GRPOTrainer` can't train on clean trajectories as it is set up; the message says what to change."""


def check_method(method: Method) -> None:
    """Raise `TrlRefusedError` for a method that TRL can't train with."""
    if method.two_views:
        raise TrlRefusedError(
            f"method={method.value!r} gives rollouts two rows, and TRL takes one: take method='hindsight', views='one'"
        )
    if method not in OFFERED:
        raise TrlRefusedError(f"method={method.value!r} doesn't run on TRL; take one of {', '.join(OFFERED)}")


def check_views(config: PurifyConfig, method: Method) -> None:
    """Raise `TrlRefusedError` for views that give a rollout more than one row, or that the method has not.

    And for a mass of theirs, and for a bound on log-prob gaps that would refuse every repair.
    """
    views, max_logprob_gap = config.views, config.max_logprob_gap
    if views.two_rows:
        raise TrlRefusedError(
            f"views={views.value!r} gives rollouts two rows, and TRL takes one: take 'one' or 'clean'"
        )
    if views is Views.ONE and not method.hindsight:
        raise TrlRefusedError(f"views='one' needs repairs in hindsight, and method={method.value!r} makes none")
    if config.mass is not None:
        raise TrlRefusedError("TRL computes advantages itself, so every rollout counts 1: leave mass out")
    if max_logprob_gap is not None and max_logprob_gap <= 0:
        raise TrlRefusedError(f"max_logprob_gap is {max_logprob_gap}; give a positive number, or leave it out")


def check_trainer(trainer: Any) -> None:
    """Raise `TrlRefusedError` if the trainer would change, split or ignore what rollouts give it."""
    checks = [_tools(trainer), _rewards(trainer), _sampling(trainer), _ignored(trainer), _engine(trainer)]
    problems = [problem for found in checks for problem in found]
    if problems:
        raise TrlRefusedError("; ".join(problems))


def check_groups(prompts: Sequence[Any], generations: int) -> None:
    """Raise `TrlRefusedError` if a process was given parts of groups."""
    groups = [prompts[first : first + generations] for first in range(0, len(prompts), generations)]
    if any(len(group) < generations or any(each != group[0] for each in group) for group in groups):
        raise TrlRefusedError(
            f"this process got {len(prompts)} prompts, which are not whole groups of num_generations={generations}: a "
            "group that is split over processes can't be compared. Set per_device_train_batch_size x "
            "steps_per_generation (and per_device_eval_batch_size) to a multiple of num_generations"
        )


def _tools(trainer: Any) -> list[str]:
    named = {"tools": trainer.tools, "environment_factory": getattr(trainer, "environment_factories", None)}
    return [
        f"{name}= makes TRL run its own tool loop after ours, and ignore our loss mask: leave it out; the prompt "
        "of CleanerRollouts describes the tool"
        for name, given in named.items()
        if given
    ]


def _rewards(trainer: Any) -> list[str]:
    problems = [
        "reward_funcs has a model, and rollouts are rewarded before TRL renders them: write a function that calls it"
        for each in trainer.reward_funcs
        if hasattr(each, "parameters")
    ]
    aggregation = getattr(trainer, "multi_objective_aggregation", "sum_then_normalize")
    if len(trainer.reward_funcs) > 1 and aggregation != "sum_then_normalize":
        problems.append(
            f"multi_objective_aggregation={aggregation!r} compares rollouts by another sum than RoC and mask do: leave "
            "it out"
        )
    return problems


def _sampling(trainer: Any) -> list[str]:
    wrong = [
        f"{name}={value}"
        for name, allowed in EXACT.items()
        if (value := getattr(trainer.args, name, allowed[0])) not in allowed
    ]
    if not wrong:
        return []
    return [
        f"{', '.join(wrong)}: log-probs are scored at temperature 1 over all tokens, so sampled ones must be too; "
        "leave these settings at temperature=1.0, top_p=1.0, top_k=0, min_p=None and repetition_penalty=1.0"
    ]


def _ignored(trainer: Any) -> list[str]:
    """Name settings of how TRL itself samples. They would be ignored, because rollouts are ours."""
    given = [name for name in IGNORED if getattr(trainer.args, name, None)]
    return [f"{name}= has no effect on rollouts of CleanerRollouts: {IGNORED[name]}" for name in given]


def _engine(trainer: Any) -> list[str]:
    if trainer.use_vllm:
        parallel = int(getattr(trainer.args, "vllm_tensor_parallel_size", 1))
        if trainer.args.vllm_mode != "colocate" or parallel == 1:
            return []
        return [
            f"vllm_tensor_parallel_size={parallel}: all parts of a vLLM in the trainer's processes must get the same "
            "requests, and rollouts of each process ask for others. Set it to 1, or take vllm_mode='server'"
        ]
    sharded = [name for name in ("is_fsdp_enabled", "is_deepspeed_enabled") if getattr(trainer, name, False)]
    if sharded:
        return [
            "the model is sharded over processes (FSDP or DeepSpeed), and can't be sampled from in one of them: "
            "train on one device or with DDP, or set use_vllm=True"
        ]
    return []

"""Lists every function and class of verl and vLLM that this package calls or extends, with the signature it relies on.

A new release of verl changes some of them. `broken_hooks` names all that changed at once; `cleaner train`, its
`--dry-run` and the tests call it. It reads the source of verl and vLLM without importing them, because importing vLLM
takes longer than all other checks. Keys of verl's configuration are checked by composing a recipe's settings
(`compose`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

from cleaner_rl.train.verl.source import Definition, annotated, definition, methods, package_folder, parameters

VERL_VERSION = "0.9.1"
"""The release that this package was written for and tested with."""

_LOOP = "verl.experimental.agent_loop.agent_loop"
_BUFFER = "verl.trainer.ppo.v1.replay_buffer"
_BUFFER_ARGUMENTS = (
    "trainer_mode trainer_config max_off_policy_threshold max_off_policy_strategy sampler_kwargs poll_interval "
    "refill_fn filter_groups_metric train_batch_size gen_batch_size max_inflight_gen_batches sync_refill_failed_groups"
)
_SERVER = "verl.workers.rollout.vllm_rollout.vllm_async_server"
_ROUTER = "verl.workers.rollout.router:RequestLoadBalancer"

SIGNATURES: dict[str, str] = {
    # the CPU platform and its patches
    "verl.plugin.platform:PlatformRegistry.register": "platform",
    "verl.utils.distributed:initialize_global_process_group_ray": "timeout_second backend",
    "verl.utils.distributed:initialize_global_process_group": "timeout_second",
    "vllm.model_executor.layers.utils:dispatch_cpu_unquantized_gemm": "layer remove_weight",
    # the agent loop
    f"{_LOOP}:AgentLoopBase.__init__": "trainer_config server_manager tokenizer processor dataset_cls data_config",
    f"{_LOOP}:AgentLoopBase.run": "sampling_params",
    "verl.trainer.ppo.v1.agent_loop_tq:AgentLoopManagerTQ._init_agent_loop_workers": "",
    "verl.workers.rollout.llm_server:LLMServerClient.generate": "request_id prompt_ids sampling_params",
    "verl.workers.rollout.llm_server:FullyAsyncLLMServerClient.generate": "request_id prompt_ids sampling_params",
    f"{_SERVER}:vLLMHttpServer.generate": "prompt_ids sampling_params request_id",
    # the cold start
    "verl.utils.dataset.multiturn_sft_dataset:MultiTurnSFTDataset._read_files_and_process": "",
    # groups
    "verl.trainer.ppo.v1.agent_loop_tq:AgentLoopManagerTQ.generate_sequences": "prompts",
    "verl.trainer.ppo.v1.trainer_base:PPOTrainer._rollout_server_managers": "",
    f"{_BUFFER}:ReplayBuffer.__init__": _BUFFER_ARGUMENTS,
    f"{_BUFFER}:ReplayBuffer.sample": "global_steps partition_id batch_size",
    f"{_BUFFER}:ReplayBuffer._sync_metadata_from_transfer_queue": "",
    f"{_BUFFER}:ReplayBuffer._terminal_eviction_reasons": "global_steps partition_id",
    f"{_BUFFER}:ReplayBuffer._evict_terminal_groups": "global_steps partition_id eviction_reasons",
    f"{_BUFFER}:ReplayBuffer._dapo_filtered_keys": "partition_id",
    f"{_BUFFER}:ReplayBuffer._clear_groups": "partition_id uids",
    f"{_BUFFER}:ReplayBuffer._wait_for_next_poll": "partition_id last_debug_time",
    f"{_BUFFER}:ReplayBuffer._materialize_batch": "partition_id selected_prompt_uids partition_snapshot",
    f"{_BUFFER}:ReplayBufferAsync._terminal_eviction_reasons": "global_steps partition_id",
    "verl.trainer.ppo.padding_utils:upsample_batch_to_divisible_size": "batch batch_multiple eos_token_id",
    # advantages
    "verl.trainer.ppo.core_algos:register_adv_est": "name_or_enum",
    "verl.trainer.ppo.ray_trainer:compute_advantage": "data adv_estimator",
    "verl.utils.tensordict_utils:list_of_dict_to_tensordict": "",
    # LoRA
    "verl.utils.fsdp_utils:get_fsdp_full_state_dict": "model",
    "verl.utils.fsdp_utils:normalize_peft_param_name": "params",
    # the start
    "verl.utils.config:validate_config": "config use_reference_policy use_critic",
    # the router
    f"{_ROUTER}.acquire_server": "request_id extra",
    f"{_ROUTER}.release_server": "server_id request_id",
    f"{_ROUTER}.require_acquire_fields": "",
    f"{_ROUTER}.require_release_fields": "",
    f"{_ROUTER}.add_servers": "servers",
    f"{_ROUTER}.remove_servers": "server_ids",
    f"{_ROUTER}.get_all_servers": "",
    f"{_ROUTER}.get_status": "",
    f"{_ROUTER}.clear_sticky_cache": "",
    f"{_ROUTER}.get_total_inflight": "",
}
"""Callables, each with the parameters that we pass or override."""

FIELDS: dict[str, str] = {
    f"{_LOOP}:AgentLoopOutput": (
        "prompt_ids response_ids response_mask response_logprobs reward_score num_turns metrics extra_fields"
    ),
    f"{_LOOP}:AgentLoopMetrics": "generate_sequences tool_calls compute_score num_preempted",
    "verl.workers.rollout.replica:TokenOutput": "token_ids log_probs stop_reason extra_fields",
}
"""Data classes, each with the fields that we read or set."""


def broken_hooks() -> list[str]:
    """Name each part of verl that is missing or has another signature; empty if all are as expected."""
    return [
        *_problems(SIGNATURES, parameters),
        *_problems(FIELDS, annotated),
        *_platform_problems(),
    ]


def refusals(arguments: Sequence[str], trainer: str = "ppo_trainer") -> list[str]:
    """Say why the installed verl can't run with these settings; empty if it can."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        config = compose(arguments, trainer)
    except (HydraException, OmegaConfBaseException) as error:
        return [f"verl doesn't know these settings: {error}"]
    return _conflicts(config) if trainer == "ppo_trainer" else []


def _conflicts(config: Any) -> list[str]:
    """Say which settings verl's trainer knows but refuses together."""
    from verl.utils.config import validate_config

    # As in verl.trainer.ppo.utils, which would load all of verl's losses for these two lines.
    reference = config.algorithm.use_kl_in_reward or config.actor_rollout_ref.actor.use_kl_loss
    enabled = config.critic.enable
    critic = config.algorithm.adv_estimator == "gae" if enabled is None else bool(enabled)
    # On success it prints to stdout, which belongs to the dry run.
    with redirect_stdout(StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            validate_config(config, reference, critic)
        except (AssertionError, ValueError) as error:
            return [f"verl refuses these settings: {error}"]
    return []


def compose(arguments: Sequence[str], trainer: str = "ppo_trainer") -> Any:
    """Compose verl's whole configuration with these settings; Hydra raises at a key that verl doesn't know."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir

    with initialize_config_dir(str(package_folder("verl") / "trainer" / "config"), version_base=None):
        return hydra_compose(trainer, overrides=list(arguments))


def _problems(hooks: Mapping[str, str], names: Callable[[Definition], Collection[str]]) -> list[str]:
    problems = []
    for place, wanted in hooks.items():
        try:
            found = names(definition(place))
        except LookupError as error:
            problems.append(f"{place} is missing: {error.args[0]}")
            continue
        missing = [name for name in wanted.split() if name not in found]
        if missing:
            problems.append(f"{place} lacks {', '.join(missing)}")
    return problems


def _platform_problems() -> list[str]:
    ours = {*methods(definition("cleaner_rl.train.verl.cpu.platform:PlatformCPU"))}
    abstract = methods(definition("verl.plugin.platform.platform_base:PlatformBase"), only="abstractmethod")
    missing = sorted(set(abstract) - ours)
    return [f"PlatformCPU doesn't implement {', '.join(missing)}"] if missing else []

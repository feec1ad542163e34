"""Turns a recipe into verl's configuration: a flat mapping of dotted keys, as Hydra takes them.

A key that begins with "+" is one that verl's own files don't list. A dry run, which needs no verl, prints the same
mapping that a run uses; `cleaner_rl.train.verl.compat` checks by composing it whether verl knows each key.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from cleaner_rl.train.recipe.enums import Router
from cleaner_rl.train.recipe.settings import Recipe, RecipeError
from cleaner_rl.train.verl.packing import SOLVED
from cleaner_rl.train.verl.plan import AGENT, agent_loops, router_file
from cleaner_rl.train.verl.settings import (
    ACTOR,
    ATTENTION,
    DTYPE,
    KEEP,
    KL,
    LEARNING_RATE,
    LORA_RANK,
    MICRO_BATCH,
    MODEL,
    OFFLOAD,
    REF,
    ROLLOUT,
    TEMPLATE,
    USE_KL,
    DeviceKind,
    Devices,
    Dtype,
    TrainerMode,
    devices_of,
    flat,
    own_settings,
)

POLL_SECONDS = 0.1
"""Seconds between two polls of the sampler, the same for every method."""
ESTIMATOR = "cleaner"
"""The name under which verl knows our advantages: GRPO's, computed by `cleaner_rl.resample`."""
MODULES = "VERL_USE_EXTERNAL_MODULES"
LORA = "cleaner_rl.train.verl.lora"
"""Is loaded in addition if adapters are trained."""
ENVIRONMENT = {MODULES: "cleaner_rl.train.verl.plugin", "TOKENIZERS_PARALLELISM": "false"}
CPU_ENVIRONMENT = {
    **ENVIRONMENT,
    "VERL_PLATFORM": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    # Ray would start a process for each logical core in advance, and verl's processes, which have their own
    # environment, would use none of them.
    "RAY_prestart_worker_first_driver": "0",
    "RAY_enable_worker_prestart": "0",
}
UNIPROC = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
"""verl's "mp" is a second process, and both spin while they wait for each other, on cores that others need. vLLM
refuses the short name "uni" on CPUs, because it can't bind threads then; here no threads are bound."""
FLASH = "flash_attention_2"
"""The package flash-attn, which has to be built for the installed torch."""
TORCH = "sdpa"
"""torch's own attention, which needs no further package; verl then needs more memory for log-probs."""
SHORT = {Dtype.FLOAT32: "fp32", Dtype.BFLOAT16: "bf16", Dtype.FLOAT16: "fp16"}


def overrides(recipe: Recipe, folder: Path) -> dict[str, object]:
    """Return verl's settings for a recipe whose run is in `folder`.

    What the recipe has in verl's words overrides all else. Some settings follow from others: an offload of weights
    takes the optimizer along, adapters are merged, and a run on CPUs needs a dozen settings of its own.
    """
    own, devices = own_settings(recipe), devices_of(recipe)
    values = {
        **_data(recipe),
        **_model(recipe, own, devices),
        **_update(recipe, own, devices),
        **_rollout(recipe, folder, devices),
        **_sampler(folder, devices),
        **_trainer(recipe, folder, devices),
        # The engine serves a plain model: with adapters of its own, vLLM for CPUs fails when it scores a prompt, and in
        # the mode separate_async verl would send it none.
        **({f"{MODEL}.lora.merge": True} if own.get(LORA_RANK) else {}),
        **(_separate(recipe, devices) if devices.mode is TrainerMode.SEPARATE_ASYNC else {}),
        **(_cpu(recipe, devices) if devices.kind is DeviceKind.CPU else {}),
    }
    values = with_own(values, recipe.verl)
    if not recipe.tasks.held_out:
        values["trainer.test_freq"] = -1
    if values.get("algorithm.norm_adv_by_std_in_grpo") is False and values["algorithm.adv_estimator"] == ESTIMATOR:
        # Our advantages are divided by the deviation; verl's own need not be.
        values["algorithm.adv_estimator"] = "grpo"
    return {**values, "trainer.logger": with_file(values["trainer.logger"])}


def with_own(values: Mapping[str, object], own: Mapping[str, object]) -> dict[str, object]:
    """Return settings overridden by those of a recipe, under either spelling of a key."""
    result = dict(values)
    for key, value in flat(own).items():
        plain = key.removeprefix("+")
        result.pop(plain, None)
        added = f"+{plain}" in result or plain.startswith(f"{TEMPLATE}.")
        result[f"+{plain}" if added else key] = value
    return result


def number(settings: Mapping[str, object], key: str) -> float:
    """Return a number of verl's settings; raise `RecipeError` if it is none."""
    value = settings[key]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RecipeError(f"verl.{key} is {value!r}; it must be a number")
    return value


def with_file(loggers: object) -> list[object]:
    """Return verl's loggers with `file`, from which a run's own lines per step are made."""
    named = loggers if isinstance(loggers, list) else [loggers]
    return list(dict.fromkeys([*named, "file"]))


def as_arguments(values: Mapping[str, object]) -> list[str]:
    """Return settings as Hydra reads them from a command line."""
    return [f"{key}={_hydra(value)}" for key, value in values.items()]


def environment(recipe: Recipe) -> Mapping[str, str]:
    """Return the environment variables of verl's processes."""
    variables = CPU_ENVIRONMENT if devices_of(recipe).kind is DeviceKind.CPU else ENVIRONMENT
    if not own_settings(recipe).get(LORA_RANK):
        return variables
    return {**variables, MODULES: f"{variables[MODULES]},{LORA}"}


def _data(recipe: Recipe) -> dict[str, object]:
    return {
        "data.train_files": recipe.tasks.train,
        "data.val_files": recipe.tasks.held_out or recipe.tasks.train,
        "data.train_batch_size": recipe.batch.prompts,
        "data.max_prompt_length": recipe.budget.prompt_tokens,
        "data.max_response_length": recipe.budget.response_tokens,
        "data.filter_overlong_prompts": False,
        "data.truncation": "error",
        "data.return_raw_chat": True,
        "data.seed": recipe.seed,
    }


def _model(recipe: Recipe, own: Mapping[str, object], devices: Devices) -> dict[str, object]:
    offload = bool(own.get(OFFLOAD))
    values: dict[str, object] = {
        f"{MODEL}.path": recipe.model.path,
        f"+{ATTENTION}": attention(recipe),
        # Log-probs and entropies by chunks of 512 tokens: the logits of a whole long response are gigabytes.
        f"{MODEL}.use_fused_kernels": True,
        f"{MODEL}.fused_kernel_options.impl_backend": "torch",
        f"{ACTOR}.strategy": "fsdp2",
        f"{ACTOR}.fsdp_config.seed": recipe.seed,
        f"{ACTOR}.fsdp_config.optimizer_offload": offload,
    }
    for role in (ACTOR, REF) if _uses_kl(own) else (ACTOR,):
        values |= {
            f"{role}.fsdp_config.param_offload": offload,
            # verl computes in bfloat16 without these keys; its key `dtype` alone doesn't change that.
            f"+{role}.fsdp_config.mixed_precision.param_dtype": SHORT[devices.dtype],
            f"+{role}.fsdp_config.mixed_precision.reduce_dtype": "fp32",
            f"+{role}.fsdp_config.mixed_precision.buffer_dtype": "fp32",
        }
    return values


def _uses_kl(own: Mapping[str, object]) -> bool:
    """Return whether the update has a KL loss, which a weight above 0 turns on."""
    return bool(own.get(USE_KL, own.get(KL)))


def attention(recipe: Recipe) -> object:
    """Return the attention that a model is trained with; engines have their own."""
    default = TORCH if devices_of(recipe).kind is DeviceKind.CPU else FLASH
    return own_settings(recipe).get(ATTENTION, default)


def _update(recipe: Recipe, own: Mapping[str, object], devices: Devices) -> dict[str, object]:
    return {
        "algorithm.adv_estimator": ESTIMATOR,
        "algorithm.use_kl_in_reward": False,
        "algorithm.filter_groups.enable": recipe.batch.dynamic_sampling,
        "algorithm.filter_groups.metric": SOLVED,
        "algorithm.rollout_correction.rollout_is": "token",
        "algorithm.rollout_correction.rollout_is_threshold": 2.0,
        f"{ACTOR}.ppo_mini_batch_size": recipe.batch.mini_batch,
        MICRO_BATCH: devices.micro_batch,
        f"{REF}.log_prob_micro_batch_size_per_gpu": devices.micro_batch,
        LEARNING_RATE: 1e-6,
        f"{ACTOR}.optim.lr_warmup_steps": 20,
        f"{ACTOR}.clip_ratio_low": 0.2,
        f"{ACTOR}.clip_ratio_high": 0.28,
        f"{ACTOR}.clip_ratio_c": 10.0,
        f"{ACTOR}.loss_agg_mode": "token-mean",
        USE_KL: _uses_kl(own),
        KL: 0.001 if _uses_kl(own) else 0.0,
        f"{ACTOR}.entropy_coeff": 0,
        f"{ACTOR}.data_loader_seed": recipe.seed,
    }


def _rollout(recipe: Recipe, folder: Path, devices: Devices) -> dict[str, object]:
    return {
        f"{ROLLOUT}.name": devices.engine,
        DTYPE: devices.dtype,
        f"{ROLLOUT}.n": recipe.rows,
        f"{ROLLOUT}.seed": recipe.seed,
        f"{ROLLOUT}.temperature": 1.0,
        f"{ROLLOUT}.top_p": 1.0,
        f"{ROLLOUT}.calculate_log_probs": True,
        f"{ROLLOUT}.tensor_model_parallel_size": devices.tensor_parallel,
        f"{ROLLOUT}.gpu_memory_utilization": 0.7,
        f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": devices.micro_batch,
        f"{ROLLOUT}.max_model_len": recipe.window,
        f"{ROLLOUT}.val_kwargs.n": 1,
        f"{ROLLOUT}.val_kwargs.temperature": 1.0,
        f"{ROLLOUT}.val_kwargs.top_p": 1.0,
        f"{ROLLOUT}.val_kwargs.do_sample": True,
        f"{ROLLOUT}.agent.num_workers": devices.workers,
        f"{ROLLOUT}.agent.default_agent_loop": AGENT,
        f"{ROLLOUT}.agent.agent_loop_config_path": str(agent_loops(folder)),
        f"+{ROLLOUT}.agent.agent_loop_manager_class": "cleaner_rl.train.verl.manager.CleanerManager",
        f"{ROLLOUT}.router_config_path": str(router_file(folder)) if recipe.run.router is Router.EVEN else None,
        # The grader runs in our loop, but verl starts this many of its own reward workers anyway.
        "reward.num_workers": 1,
    }


def _sampler(folder: Path, devices: Devices) -> dict[str, object]:
    name = "CleanerSampler" if devices.mode is TrainerMode.SYNC else "CleanerSamplerAsync"
    return {
        "trainer.v1.trainer_mode": devices.mode,
        "trainer.v1.sampler.custom_sampler.path": "pkg://cleaner_rl.train.verl.sampler",
        "trainer.v1.sampler.custom_sampler.name": name,
        # verl then fetches prompts one by one, so that any number of groups can be replaced.
        "trainer.v1.sampler.sync_refill_failed_groups": True,
        "+trainer.v1.sampler.sampler_kwargs.folder": str(folder),
    }


def _separate(recipe: Recipe, devices: Devices) -> dict[str, object]:
    """Return the settings of engines on machines of their own, and of the way that weights take to them."""
    on_cpu = devices.kind is DeviceKind.CPU
    engine = f"{ROLLOUT}.checkpoint_engine"
    return {
        f"{ROLLOUT}.nnodes": devices.engine_nodes,
        f"{ROLLOUT}.n_gpus_per_node": devices.per_node,
        f"{engine}.backend": "gloo" if on_cpu else "nccl",
        f"{engine}.custom_backend_module": "cleaner_rl.train.verl.gloo_weights" if on_cpu else None,
        # A step of ours: all mini-batches of its prompts, then one transfer of weights.
        "trainer.v1.separate_async.parameter_sync_step": recipe.batch.prompts // recipe.batch.mini_batch,
    }


def _trainer(recipe: Recipe, folder: Path, devices: Devices) -> dict[str, object]:
    steps = recipe.run.steps
    return {
        "trainer.project_name": "cleaner-rl",
        "trainer.experiment_name": recipe.name,
        "trainer.logger": ["console"],
        # Each occupies a core of Ray's; with verl's eight, a small machine has none left, and the run would hang.
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 2 * devices.nodes,
        "trainer.nnodes": devices.nodes,
        "trainer.n_gpus_per_node": devices.per_node,
        # verl ends with whichever comes first; an epoch has at least one step, so the steps do.
        "trainer.total_epochs": steps or 1,
        "trainer.total_training_steps": steps or None,
        "trainer.save_freq": 20,
        KEEP: 3,
        "trainer.test_freq": 20,
        "trainer.val_before_train": bool(recipe.tasks.held_out),
        "trainer.resume_mode": "auto",
        # The model in Hugging Face format too, so that it can be served and evaluated.
        f"{ACTOR}.checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"],
        "trainer.default_local_dir": str(folder / "checkpoints"),
    }


def _cpu(recipe: Recipe, devices: Devices) -> dict[str, object]:
    """Return the settings of verl and vLLM for machines without an accelerator (`cleaner_rl.train.verl.cpu`)."""
    vllm = f"+{ROLLOUT}.engine_kwargs.vllm"
    return {
        "data.dataloader_num_workers": 0,
        f"{MODEL}.use_remove_padding": False,
        f"{MODEL}.enable_gradient_checkpointing": False,
        f"{ACTOR}.use_torch_compile": False,
        f"{ACTOR}.fsdp_config.use_torch_compile": False,
        f"{REF}.fsdp_config.use_torch_compile": False,
        f"{ROLLOUT}.enforce_eager": True,
        f"{ROLLOUT}.free_cache_engine": False,
        f"+{ROLLOUT}.enable_sleep_mode": False,
        f"{ROLLOUT}.load_format": "auto",
        f"{ROLLOUT}.max_num_seqs": 128,
        # A seeded request with a chunked prompt crashes vLLM on CPUs: "CPU Generator does not use offset".
        f"{ROLLOUT}.enable_chunked_prefill": False,
        f"{ROLLOUT}.max_num_batched_tokens": max(4_096, recipe.window),
        f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes": 256,
        f"{vllm}.worker_extension_cls": "cleaner_rl.train.verl.cpu.vllm_worker.CpuWorkerExtension",
        f"{vllm}.distributed_executor_backend": UNIPROC if devices.tensor_parallel == 1 else "mp",
        f"{vllm}.block_size": 32,
        f"{vllm}.compilation_config.cudagraph_mode": "NONE",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
        "trainer.device": "cpu",
        # A cluster that is there has resources of its own, and Ray refuses others.
        **({} if os.environ.get("RAY_ADDRESS") else _own_ray(devices)),
    }


def _own_ray(devices: Devices) -> dict[str, object]:
    """Return the settings of the Ray that a run without GPUs starts for itself."""
    separate = devices.mode is TrainerMode.SEPARATE_ASYNC
    ranks = (devices.nodes + devices.engine_nodes * separate) * devices.per_node
    return {
        # Logical cores for Ray's placement, not the machine's.
        "ray_kwargs.ray_init.num_cpus": 8 + 4 * ranks + devices.workers,
        "+ray_kwargs.ray_init.num_gpus": ranks,
        "+ray_kwargs.ray_init.include_dashboard": False,
        "+ray_kwargs.ray_init._node_ip_address": "127.0.0.1",
    }


def _hydra(value: object) -> str:
    """Write a value in Hydra's grammar: JSON, but plain words without quotes."""
    if isinstance(value, str) and value and all(sign.isalnum() or sign in "-_./:" for sign in value):
        return value
    return json.dumps(value, ensure_ascii=False)

"""Turns a recipe into verl's configuration: a flat mapping of dotted keys, as Hydra takes them.

A key that begins with "+" is one that verl's own files don't list. A dry run, which needs no verl, prints the same
mapping that a run uses; `cleaner_rl.train.verl.compat` checks by composing it whether verl knows each key.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from cleaner_rl.train.recipe.enums import Correction, DeviceKind, Dtype, Router, TrainerMode
from cleaner_rl.train.recipe.settings import LoraSettings, Recipe
from cleaner_rl.train.verl.packing import SOLVED
from cleaner_rl.train.verl.plan import AGENT, agent_loops, router_file

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
_A = "actor_rollout_ref"
UNIPROC = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
"""verl's "mp" is a second process, and both spin while they wait for each other, on cores that others need. vLLM
refuses the short name "uni" on CPUs, because it can't bind threads then; here no threads are bound."""
SHORT = {Dtype.FLOAT32: "fp32", Dtype.BFLOAT16: "bf16", Dtype.FLOAT16: "fp16"}


def overrides(recipe: Recipe, folder: Path) -> dict[str, object]:
    """Return verl's settings for a recipe whose run is in `folder`."""
    values = {
        **_data(recipe),
        **_model(recipe),
        **_update(recipe),
        **_rollout(recipe, folder),
        **_sampler(recipe, folder),
        **_trainer(recipe, folder),
        **(_lora(recipe.model.lora) if recipe.model.lora is not None else {}),
        **(_separate(recipe) if recipe.device.mode is TrainerMode.SEPARATE_ASYNC else {}),
        **(_cpu(recipe) if recipe.device.kind is DeviceKind.CPU else {}),
    }
    for key, value in flat(recipe.verl).items():
        # These override all others, under either spelling of the key.
        values.pop(key.removeprefix("+"), None)
        known = f"+{key.removeprefix('+')}"
        values[known if known in values else key] = value
    if values.get("algorithm.norm_adv_by_std_in_grpo") is False and values["algorithm.adv_estimator"] == ESTIMATOR:
        # Our advantages are divided by the deviation; verl's own need not be.
        values["algorithm.adv_estimator"] = "grpo"
    return {**values, "trainer.logger": with_file(values["trainer.logger"])}


def with_file(loggers: object) -> list[object]:
    """Return verl's loggers with `file`, from which a run's own lines per step are made."""
    named = loggers if isinstance(loggers, list) else [loggers]
    return list(dict.fromkeys([*named, "file"]))


def as_arguments(values: Mapping[str, object]) -> list[str]:
    """Return settings as Hydra reads them from a command line."""
    return [f"{key}={_hydra(value)}" for key, value in values.items()]


def environment(recipe: Recipe) -> Mapping[str, str]:
    """Return the environment variables of verl's processes."""
    variables = CPU_ENVIRONMENT if recipe.device.kind is DeviceKind.CPU else ENVIRONMENT
    if recipe.model.lora is None:
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
        **{f"+data.apply_chat_template_kwargs.{key}": value for key, value in recipe.model.template.items()},
    }


def _model(recipe: Recipe) -> dict[str, object]:
    offload, roles = recipe.device.offload, ("actor", "ref") if recipe.update.kl else ("actor",)
    values: dict[str, object] = {
        f"{_A}.model.path": recipe.model.path,
        f"+{_A}.model.override_config.attn_implementation": recipe.attention,
        # Log-probs and entropies by chunks of 512 tokens: the logits of a whole long response are gigabytes.
        f"{_A}.model.use_fused_kernels": True,
        f"{_A}.model.fused_kernel_options.impl_backend": "torch",
        f"{_A}.actor.strategy": "fsdp2",
        f"{_A}.actor.fsdp_config.seed": recipe.seed,
        f"{_A}.actor.fsdp_config.optimizer_offload": offload,
    }
    for role in roles:
        values |= {
            f"{_A}.{role}.fsdp_config.param_offload": offload,
            # verl computes in bfloat16 without these keys; its key `dtype` alone doesn't change that.
            f"+{_A}.{role}.fsdp_config.mixed_precision.param_dtype": SHORT[recipe.model.dtype],
            f"+{_A}.{role}.fsdp_config.mixed_precision.reduce_dtype": "fp32",
            f"+{_A}.{role}.fsdp_config.mixed_precision.buffer_dtype": "fp32",
        }
    return values


def _lora(lora: LoraSettings) -> dict[str, object]:
    return {
        f"{_A}.model.lora_rank": lora.rank,
        f"{_A}.model.lora_alpha": lora.alpha,
        # The engine serves a plain model: with adapters of its own, vLLM for CPUs fails when it scores a prompt, and in
        # the mode separate_async verl would send it none.
        f"{_A}.model.lora.merge": True,
    }


def _update(recipe: Recipe) -> dict[str, object]:
    update, batch = recipe.update, recipe.batch
    return {
        "algorithm.adv_estimator": ESTIMATOR,
        "algorithm.use_kl_in_reward": False,
        "algorithm.filter_groups.enable": batch.dynamic_sampling,
        "algorithm.filter_groups.metric": SOLVED,
        "algorithm.rollout_correction.rollout_is": None if update.correction is Correction.NONE else update.correction,
        "algorithm.rollout_correction.rollout_is_threshold": update.correction_threshold,
        f"{_A}.actor.ppo_mini_batch_size": batch.mini_batch,
        f"{_A}.actor.ppo_micro_batch_size_per_gpu": batch.micro_batch,
        f"{_A}.ref.log_prob_micro_batch_size_per_gpu": batch.micro_batch,
        f"{_A}.actor.optim.lr": update.lr,
        f"{_A}.actor.optim.lr_warmup_steps": update.warmup_steps,
        f"{_A}.actor.clip_ratio_low": update.clip_low,
        f"{_A}.actor.clip_ratio_high": update.clip_high,
        f"{_A}.actor.clip_ratio_c": update.clip_c,
        f"{_A}.actor.loss_agg_mode": update.loss,
        f"{_A}.actor.use_kl_loss": bool(update.kl),
        f"{_A}.actor.kl_loss_coef": update.kl,
        f"{_A}.actor.entropy_coeff": 0,
        f"{_A}.actor.data_loader_seed": recipe.seed,
    }


def _rollout(recipe: Recipe, folder: Path) -> dict[str, object]:
    device = recipe.device
    return {
        f"{_A}.rollout.name": device.engine,
        f"{_A}.rollout.dtype": recipe.model.dtype,
        f"{_A}.rollout.n": recipe.rows,
        f"{_A}.rollout.seed": recipe.seed,
        f"{_A}.rollout.temperature": recipe.sampling.temperature,
        f"{_A}.rollout.top_p": recipe.sampling.top_p,
        f"{_A}.rollout.calculate_log_probs": True,
        f"{_A}.rollout.tensor_model_parallel_size": device.tensor_parallel,
        f"{_A}.rollout.gpu_memory_utilization": device.memory_share,
        f"{_A}.rollout.log_prob_micro_batch_size_per_gpu": recipe.batch.micro_batch,
        f"{_A}.rollout.max_model_len": recipe.window,
        f"{_A}.rollout.val_kwargs.n": recipe.run.evaluation_samples,
        f"{_A}.rollout.val_kwargs.temperature": recipe.run.evaluation_temperature,
        f"{_A}.rollout.val_kwargs.top_p": recipe.run.evaluation_top_p,
        f"{_A}.rollout.val_kwargs.do_sample": True,
        f"{_A}.rollout.agent.num_workers": device.workers,
        f"{_A}.rollout.agent.default_agent_loop": AGENT,
        f"{_A}.rollout.agent.agent_loop_config_path": str(agent_loops(folder)),
        f"+{_A}.rollout.agent.agent_loop_manager_class": "cleaner_rl.train.verl.manager.CleanerManager",
        f"{_A}.rollout.router_config_path": str(router_file(folder)) if device.router is Router.EVEN else None,
        # The grader runs in our loop, but verl starts this many of its own reward workers anyway.
        "reward.num_workers": 1,
    }


def _sampler(recipe: Recipe, folder: Path) -> dict[str, object]:
    name = "CleanerSampler" if recipe.device.mode is TrainerMode.SYNC else "CleanerSamplerAsync"
    return {
        "trainer.v1.trainer_mode": recipe.device.mode,
        "trainer.v1.sampler.custom_sampler.path": "pkg://cleaner_rl.train.verl.sampler",
        "trainer.v1.sampler.custom_sampler.name": name,
        # verl then fetches prompts one by one, so that any number of groups can be replaced.
        "trainer.v1.sampler.sync_refill_failed_groups": True,
        "+trainer.v1.sampler.sampler_kwargs.folder": str(folder),
    }


def _separate(recipe: Recipe) -> dict[str, object]:
    """Return the settings of engines on machines of their own, and of the way that weights take to them."""
    on_cpu = recipe.device.kind is DeviceKind.CPU
    engine = f"{_A}.rollout.checkpoint_engine"
    return {
        f"{_A}.rollout.nnodes": recipe.device.engine_nodes,
        f"{_A}.rollout.n_gpus_per_node": recipe.device.per_node,
        f"{engine}.backend": "gloo" if on_cpu else "nccl",
        f"{engine}.custom_backend_module": "cleaner_rl.train.verl.gloo_weights" if on_cpu else None,
        # A step of ours: all mini-batches of its prompts, then one transfer of weights.
        "trainer.v1.separate_async.parameter_sync_step": recipe.batch.prompts // recipe.batch.mini_batch,
    }


def _trainer(recipe: Recipe, folder: Path) -> dict[str, object]:
    run, device = recipe.run, recipe.device
    return {
        "trainer.project_name": "cleaner-rl",
        "trainer.experiment_name": recipe.name,
        "trainer.logger": run.loggers,
        # Each occupies a core of Ray's; with verl's eight, a small machine has none left, and the run would hang.
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 2 * device.nodes,
        "trainer.nnodes": device.nodes,
        "trainer.n_gpus_per_node": device.per_node,
        # verl ends with whichever comes first; an epoch has at least one step, so the steps do.
        "trainer.total_epochs": run.steps or run.epochs,
        "trainer.total_training_steps": run.steps or None,
        "trainer.save_freq": run.save_every or -1,
        "trainer.max_actor_ckpt_to_keep": run.keep_checkpoints or None,
        "trainer.test_freq": run.evaluate_every if recipe.tasks.held_out else -1,
        "trainer.val_before_train": bool(recipe.tasks.held_out),
        "trainer.resume_mode": "auto",
        # The model in Hugging Face format too, so that it can be served and evaluated.
        f"{_A}.actor.checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"],
        "trainer.default_local_dir": str(folder / "checkpoints"),
    }


def _cpu(recipe: Recipe) -> dict[str, object]:
    """Return the settings of verl and vLLM for machines without an accelerator (`cleaner_rl.train.verl.cpu`)."""
    vllm = f"+{_A}.rollout.engine_kwargs.vllm"
    return {
        "data.dataloader_num_workers": 0,
        f"{_A}.model.use_remove_padding": False,
        f"{_A}.model.enable_gradient_checkpointing": False,
        f"{_A}.actor.use_torch_compile": False,
        f"{_A}.actor.fsdp_config.use_torch_compile": False,
        f"{_A}.ref.fsdp_config.use_torch_compile": False,
        f"{_A}.rollout.enforce_eager": True,
        f"{_A}.rollout.free_cache_engine": False,
        f"+{_A}.rollout.enable_sleep_mode": False,
        f"{_A}.rollout.load_format": "auto",
        f"{_A}.rollout.max_num_seqs": 128,
        # A seeded request with a chunked prompt crashes vLLM on CPUs: "CPU Generator does not use offset".
        f"{_A}.rollout.enable_chunked_prefill": False,
        f"{_A}.rollout.max_num_batched_tokens": max(4_096, recipe.window),
        f"{_A}.rollout.checkpoint_engine.update_weights_bucket_megabytes": 256,
        f"{vllm}.worker_extension_cls": "cleaner_rl.train.verl.cpu.vllm_worker.CpuWorkerExtension",
        f"{vllm}.distributed_executor_backend": UNIPROC if recipe.device.tensor_parallel == 1 else "mp",
        f"{vllm}.block_size": 32,
        f"{vllm}.compilation_config.cudagraph_mode": "NONE",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
        "trainer.device": "cpu",
        # A cluster that is there has resources of its own, and Ray refuses others.
        **({} if os.environ.get("RAY_ADDRESS") else _own_ray(recipe)),
    }


def _own_ray(recipe: Recipe) -> dict[str, object]:
    """Return the settings of the Ray that a run without GPUs starts for itself."""
    separate = recipe.device.mode is TrainerMode.SEPARATE_ASYNC
    ranks = (recipe.device.nodes + recipe.device.engine_nodes * separate) * recipe.device.per_node
    return {
        # Logical cores for Ray's placement, not the machine's.
        "ray_kwargs.ray_init.num_cpus": 8 + 4 * ranks + recipe.device.workers,
        "+ray_kwargs.ray_init.num_gpus": ranks,
        "+ray_kwargs.ray_init.include_dashboard": False,
        "+ray_kwargs.ray_init._node_ip_address": "127.0.0.1",
    }


def flat(values: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Return nested settings by their dotted keys."""
    found: dict[str, object] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            plus = "+" if name.startswith("+") else ""
            found |= {f"{plus}{inner}": each for inner, each in flat(value, f"{name.removeprefix('+')}.").items()}
        else:
            found[name] = value
    return found


def _hydra(value: object) -> str:
    """Write a value in Hydra's grammar: JSON, but plain words without quotes."""
    if isinstance(value, str) and value and all(sign.isalnum() or sign in "-_./:" for sign in value):
        return value
    return json.dumps(value, ensure_ascii=False)

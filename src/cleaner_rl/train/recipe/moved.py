"""Names the settings of recipes that are written otherwise now, most of them in verl's own words."""

from __future__ import annotations

from collections.abc import Mapping

_A = "verl.actor_rollout_ref"

MOVED: Mapping[str, str] = {
    "model.dtype": f"{_A}.rollout.dtype",
    "model.attention": f"{_A}.model.override_config.attn_implementation",
    "model.template": "verl.data.apply_chat_template_kwargs",
    "model.lora": f"{_A}.model.lora_rank",
    "model.lora.rank": f"{_A}.model.lora_rank",
    "model.lora.alpha": f"{_A}.model.lora_alpha",
    "sampling.temperature": f"{_A}.rollout.temperature",
    "sampling.top_p": f"{_A}.rollout.top_p",
    "batch.micro_batch": f"{_A}.actor.ppo_micro_batch_size_per_gpu",
    "update.lr": f"{_A}.actor.optim.lr",
    "update.warmup_steps": f"{_A}.actor.optim.lr_warmup_steps",
    "update.clip_low": f"{_A}.actor.clip_ratio_low",
    "update.clip_high": f"{_A}.actor.clip_ratio_high",
    "update.clip_c": f"{_A}.actor.clip_ratio_c",
    "update.loss": f"{_A}.actor.loss_agg_mode",
    "update.kl": f"{_A}.actor.kl_loss_coef",
    "update.correction": "verl.algorithm.rollout_correction.rollout_is",
    "update.correction_threshold": "verl.algorithm.rollout_correction.rollout_is_threshold",
    "update.overlong_buffer": "budget.overlong_buffer",
    "update.overlong_penalty": "budget.overlong_penalty",
    "device.kind": "verl.trainer.device",
    "device.nodes": "verl.trainer.nnodes",
    "device.per_node": "verl.trainer.n_gpus_per_node",
    "device.engine": f"{_A}.rollout.name",
    "device.tensor_parallel": f"{_A}.rollout.tensor_model_parallel_size",
    "device.mode": "verl.trainer.v1.trainer_mode",
    "device.engine_nodes": f"{_A}.rollout.nnodes",
    "device.workers": f"{_A}.rollout.agent.num_workers",
    "device.router": "run.router",
    "device.offload": f"{_A}.actor.fsdp_config.param_offload",
    "device.memory_share": f"{_A}.rollout.gpu_memory_utilization",
    "sandbox.packages": "sandbox.environment",
    "sandbox.site": "sandbox.environment",
    "sandbox.bases": "sandbox.environments",
    "run.epochs": "verl.trainer.total_epochs",
    "run.save_every": "verl.trainer.save_freq",
    "run.keep_checkpoints": "verl.trainer.max_actor_ckpt_to_keep",
    "run.evaluate_every": "verl.trainer.test_freq",
    "run.evaluation_samples": f"{_A}.rollout.val_kwargs.n",
    "run.evaluation_temperature": f"{_A}.rollout.val_kwargs.temperature",
    "run.evaluation_top_p": f"{_A}.rollout.val_kwargs.top_p",
    "run.loggers": "verl.trainer.logger",
    "cold_start.demonstrations": "cold_start.data.train_files",
    "cold_start.epochs": "cold_start.trainer.total_epochs",
    "cold_start.lr": "cold_start.optim.lr",
    "cold_start.warmup": "cold_start.optim.lr_warmup_steps_ratio",
    "cold_start.batch": "cold_start.data.train_batch_size",
    "cold_start.micro_batch": "cold_start.data.micro_batch_size_per_gpu",
    "cold_start.max_tokens": "cold_start.data.max_length",
}
"""The present name of each."""
VALUES: Mapping[str, str] = {
    "device.kind": "cpu; leave it out on GPUs",
    "sandbox.packages": "the name or path of what cleaner-sandbox env build makes",
    "sandbox.site": "the name or path of what cleaner-sandbox env build makes",
    "sandbox.bases": "names, patterns or paths of what cleaner-sandbox env build --base makes",
    "run.save_every": "-1 to save none",
    "run.keep_checkpoints": "null to keep all",
    "update.correction": "null for none",
}
"""What to write there, where the values are others too."""


def moved(values: Mapping[str, object]) -> str:
    """Say which setting of a recipe has another name now; empty if none has."""
    for section, held in values.items():
        for key in held if isinstance(held, Mapping) else ():
            old = f"{section}.{key}"
            if old in MOVED:
                hint = f" ({VALUES[old]})" if old in VALUES else ""
                return f"'{old}' is now '{MOVED[old]}'{hint}"
    return ""

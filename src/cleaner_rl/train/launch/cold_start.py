"""Runs the cold start: supervised fine-tuning on demonstrations, by verl's own SFT trainer.

Demonstrations are `messages` and `tools`, as `cleaner purify` and others write them. verl renders each message by the
model's template and trains on the assistant's messages only.

Limits: it runs only on the machine that `cleaner train` is called on, whatever `device.nodes` says.
"""

from __future__ import annotations

import sys
from hashlib import blake2b
from pathlib import Path

import msgspec

from cleaner_rl.train.recipe.enums import DeviceKind
from cleaner_rl.train.recipe.settings import ColdStartSettings, Recipe
from cleaner_rl.train.verl.overrides import SHORT, as_arguments, with_file


def cold_start_folder(recipe: Recipe) -> Path:
    """Return its folder beside the runs; the name is a hash of all that goes into it, so that runs share it."""
    assert recipe.cold_start is not None
    model = msgspec.to_builtins(recipe.model)
    del model["lora"]  # a cold start trains all weights
    settings = msgspec.json.encode([model, recipe.cold_start, recipe.seed])
    return (Path(recipe.run.folder) / f"cold-start-{blake2b(settings, digest_size=4).hexdigest()}").absolute()


def cold_start_command(recipe: Recipe, folder: Path) -> list[str]:
    """Return the command that starts verl's SFT trainer under torchrun."""
    device = recipe.device
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={device.per_node}"]
    own = [f"hydra.run.dir={folder}", "hydra.output_subdir=null"]
    return [*run, "-m", "verl.trainer.sft_trainer", *own, *as_arguments(cold_start_overrides(recipe, folder))]


def cold_start_overrides(recipe: Recipe, folder: Path) -> dict[str, object]:
    """Return verl's settings for the SFT trainer."""
    assert recipe.cold_start is not None
    start: ColdStartSettings = recipe.cold_start
    values: dict[str, object] = {
        "data.train_files": start.demonstrations,
        "data.custom_cls.path": "pkg://cleaner_rl.train.launch.sft_data",
        "data.custom_cls.name": "Demonstrations",
        "data.train_batch_size": start.batch,
        "data.micro_batch_size_per_gpu": start.micro_batch,
        "data.use_dynamic_bsz": False,
        "data.max_length": start.max_tokens,
        # verl renders each message alone; it is an error if the template renders them otherwise together.
        "data.ignore_input_ids_mismatch": False,
        "model.path": recipe.model.path,
        "optim.lr": start.lr,
        "optim.lr_warmup_steps_ratio": start.warmup,
        "optim.lr_scheduler_type": "cosine",
        "+model.override_config.attn_implementation": recipe.attention,
        "engine.strategy": "fsdp2",
        "engine.seed": recipe.seed,
        "+engine.mixed_precision.param_dtype": SHORT[recipe.model.dtype],
        "+engine.mixed_precision.reduce_dtype": "fp32",
        "+engine.mixed_precision.buffer_dtype": "fp32",
        "checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"],
        "trainer.default_local_dir": str(folder),
        "trainer.total_epochs": start.epochs,
        "trainer.project_name": "cleaner-rl",
        "trainer.experiment_name": f"{recipe.name}-cold-start",
        "trainer.logger": with_file(recipe.run.loggers),
        "trainer.seed": recipe.seed,
        "trainer.nnodes": 1,
        "trainer.n_gpus_per_node": recipe.device.per_node,
        **{f"+data.apply_chat_template_kwargs.{key}": value for key, value in recipe.model.template.items()},
    }
    if recipe.device.kind is DeviceKind.CPU:
        values |= {
            "data.num_workers": 0,
            "model.use_remove_padding": False,
            "model.enable_gradient_checkpointing": False,
            "engine.use_torch_compile": False,
            "trainer.device": "cpu",
        }
    return values


def trained_model(folder: Path) -> Path | None:
    """Return the newest model in Hugging Face format below a folder of verl's checkpoints, or None."""
    steps = sorted(folder.glob("global_step_*"), key=lambda path: int(path.name.removeprefix("global_step_")))
    for step in reversed(steps):
        for model in (step / "huggingface", step / "actor" / "huggingface"):
            if any(model.glob("*.safetensors")):
                return model
    return None

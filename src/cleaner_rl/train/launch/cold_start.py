"""Runs the cold start: supervised fine-tuning on demonstrations, by verl's own SFT trainer.

Demonstrations are `messages` and `tools`, as `cleaner purify` and others write them. verl renders each message by the
model's template and trains on the assistant's messages only.

Limits: it runs only on the machine that `cleaner train` is called on, whatever `verl.trainer.nnodes` says.
"""

from __future__ import annotations

import sys
from hashlib import blake2b
from pathlib import Path

import msgspec

from cleaner_rl.train.recipe.settings import Recipe, RecipeError, run_folder
from cleaner_rl.train.verl.overrides import SHORT, as_arguments, attention, overrides, with_file, with_own
from cleaner_rl.train.verl.settings import TEMPLATE, DeviceKind, devices_of, flat, template_of

DEMONSTRATIONS = "data.train_files"


def cold_start_folder(recipe: Recipe) -> Path:
    """Return its folder beside the runs; the name is a hash of all that goes into it, so that runs share it."""
    assert recipe.cold_start is not None
    model = [recipe.model.path, devices_of(recipe).dtype, attention(recipe), template_of(recipe)]
    settings = msgspec.json.encode([model, flat(recipe.cold_start), recipe.seed])
    return (Path(recipe.run.folder) / f"cold-start-{blake2b(settings, digest_size=4).hexdigest()}").absolute()


def cold_start_command(recipe: Recipe, folder: Path) -> list[str]:
    """Return the command that starts verl's SFT trainer under torchrun."""
    run = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc_per_node={devices_of(recipe).per_node}",
    ]
    own = [f"hydra.run.dir={folder}", "hydra.output_subdir=null"]
    return [*run, "-m", "verl.trainer.sft_trainer", *own, *as_arguments(cold_start_overrides(recipe, folder))]


def cold_start_overrides(recipe: Recipe, folder: Path) -> dict[str, object]:
    """Return verl's settings for the SFT trainer; those of the section `cold_start` override all others."""
    assert recipe.cold_start is not None
    devices = devices_of(recipe)
    values: dict[str, object] = {
        "data.custom_cls.path": "pkg://cleaner_rl.train.launch.sft_data",
        "data.custom_cls.name": "MaskedSFTDataset",
        "data.train_batch_size": 32,
        "data.micro_batch_size_per_gpu": 1,
        "data.use_dynamic_bsz": False,
        "data.max_length": 16_384,
        # verl renders each message alone; it is an error if the template renders them otherwise together.
        "data.ignore_input_ids_mismatch": False,
        "model.path": recipe.model.path,
        "optim.lr": 1e-5,
        "optim.lr_warmup_steps_ratio": 0.03,
        "optim.lr_scheduler_type": "cosine",
        "+model.override_config.attn_implementation": attention(recipe),
        "engine.strategy": "fsdp2",
        "engine.seed": recipe.seed,
        "+engine.mixed_precision.param_dtype": SHORT[devices.dtype],
        "+engine.mixed_precision.reduce_dtype": "fp32",
        "+engine.mixed_precision.buffer_dtype": "fp32",
        "checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"],
        "trainer.default_local_dir": str(folder),
        "trainer.total_epochs": 1,
        "trainer.project_name": "cleaner-rl",
        "trainer.experiment_name": f"{recipe.name}-cold-start",
        "trainer.logger": overrides(recipe, run_folder(recipe))["trainer.logger"],
        "trainer.seed": recipe.seed,
        "trainer.nnodes": 1,
        "trainer.n_gpus_per_node": devices.per_node,
        **{f"+{TEMPLATE}.{key}": value for key, value in template_of(recipe).items()},
    }
    if devices.kind is DeviceKind.CPU:
        values |= {
            "data.num_workers": 0,
            "model.use_remove_padding": False,
            "model.enable_gradient_checkpointing": False,
            "engine.use_torch_compile": False,
            "trainer.device": "cpu",
        }
    values = with_own(values, recipe.cold_start)
    return {**values, "trainer.logger": with_file(values["trainer.logger"])}


def demonstrations(recipe: Recipe) -> list[str]:
    """Return the files of demonstrations; raise `RecipeError` if the cold start names none."""
    files = flat(recipe.cold_start or {}).get(DEMONSTRATIONS)
    if not files:
        raise RecipeError(f"cold_start has no {DEMONSTRATIONS}: name the Parquet files of demonstrations, or drop it")
    return [str(file) for file in (files if isinstance(files, list) else [files])]


def trained_model(folder: Path) -> Path | None:
    """Return the newest model in Hugging Face format below a folder of verl's checkpoints, or None."""
    steps = sorted(folder.glob("global_step_*"), key=lambda path: int(path.name.removeprefix("global_step_")))
    for step in reversed(steps):
        for model in (step / "huggingface", step / "actor" / "huggingface"):
            if any(model.glob("*.safetensors")):
                return model
    return None

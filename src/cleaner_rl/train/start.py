"""Starts a run: the sandbox, the checks that cost nothing, then verl in a process of its own.

verl runs as its own program (`python -m verl.trainer.main_ppo`) with the settings that `cleaner train --dry-run`
prints, so what is trained is what was shown. It goes on from its last checkpoint if the run's folder holds one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import msgspec

from cleaner_rl.sandbox.signals import ended_by_signals
from cleaner_rl.train.abandoned import set_aside
from cleaner_rl.train.checks import (
    check_data,
    check_prompts,
    check_rows,
    check_settings,
    check_template,
    check_window,
)
from cleaner_rl.train.choices import Attention, DeviceKind
from cleaner_rl.train.cold_start import cold_start_command, cold_start_folder, cold_start_overrides, trained_model
from cleaner_rl.train.folders import part_folders, run_folder
from cleaner_rl.train.overrides import as_arguments, environment, overrides
from cleaner_rl.train.plan import Plan
from cleaner_rl.train.processes import end, started
from cleaner_rl.train.recipe import Recipe, RecipeError
from cleaner_rl.train.stages import filtered, pass_rates, stage_recipe
from cleaner_rl.trajectory.store.files import BusyError, only_writer

SANDBOX_SECONDS = 120.0
"""For a node to come up."""
FILE_LOGGER = "VERL_FILE_LOGGER_PATH"
NEEDED = ("torch", "transformers", "ray", "transfer_queue", "verl")
FLASH = "flash_attn"
INSTALL = {
    DeviceKind.GPU: "pip install 'cleaner-rl[verl]' vllm==0.27.1 (flash-attn, or --set model.attention=sdpa)",
    DeviceKind.CPU: "in a checkout, with python3.11: bash deploy/cpu-engine/install.sh FOLDER, then FOLDER/bin on PATH",
}
"""What to do about it."""


class TrainingFailedError(RuntimeError):
    """verl ended with an error; what it was, it has said above."""


def train(recipe: Recipe) -> Path:
    """Run a recipe to its end; returns its folder."""
    needed = [*NEEDED, recipe.device.engine, *([FLASH] if recipe.attention is Attention.FLASH else [])]
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise RecipeError(f"not installed here: {', '.join(missing)}; {INSTALL[recipe.device.kind]} (docs/train.md)")
    check_settings(recipe)
    check_data(recipe)
    check_rows(recipe)
    folder = run_folder(recipe)
    check_window(recipe)
    folder.mkdir(parents=True, exist_ok=True)
    chat = check_template(recipe, folder)
    check_prompts(recipe, lambda messages: len(chat.prompt(messages)))
    with ended_by_signals(), _alone_in(folder):
        if recipe.cold_start is not None:
            recipe = cold_started(recipe)
        if recipe.stages:
            _train_stages(recipe)
        else:
            _train_once(recipe, folder)
    return folder


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Two runs in one folder would write one store, and go on from each other's checkpoints."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with only_writer(folder / ".lock"):
            yield
    except BusyError as error:
        raise RecipeError(str(error)) from None


def _train_once(recipe: Recipe, folder: Path) -> None:
    set_aside(folder, evaluates=bool(overrides(recipe, folder)["trainer.val_before_train"]))
    with sandbox(recipe, folder) as addresses:
        Plan(recipe, tuple(addresses), folder).write()
        _run(command(recipe, folder), recipe, folder)


def _train_stages(recipe: Recipe) -> None:
    """One stage after the other. A finished one is passed over, one that was broken off goes on."""
    model, tasks = recipe.model.path, list(recipe.tasks.train)
    before: Path | None = None
    for stage, own in zip(recipe.stages, part_folders(recipe), strict=True):
        if before is not None and (stage.min_pass_rate, stage.max_pass_rate) != (0.0, 1.0):
            tasks = filtered(tasks, pass_rates(before / "trajectories"), stage, own)
        part = stage_recipe(recipe, stage, model, tasks)
        if not (own / "done").exists():
            check_rows(part)
            own.mkdir(parents=True, exist_ok=True)
            _train_once(part, own)
            (own / "done").touch()
        model = str(_model_of(own / "checkpoints"))
        before = own


def _model_of(checkpoints: Path) -> Path:
    model = trained_model(checkpoints)
    if model is None:
        raise TrainingFailedError(f"there is no model below {checkpoints}; set run.save_every so that the last is kept")
    return model


def cold_started(recipe: Recipe) -> Recipe:
    """The recipe from the model that its cold start gives; made now, unless a run with the same one has made it."""
    checkpoints = cold_start_folder(recipe)
    done = checkpoints / "done"
    if not done.exists():
        with _alone_in(checkpoints):
            _run(cold_start_command(recipe, checkpoints), recipe, checkpoints)
            done.touch()
    return replace(recipe, model=replace(recipe.model, path=str(_model_of(checkpoints))))


def parts(recipe: Recipe) -> dict[str, dict[str, object]]:
    """verl's settings for each part of a run, by its name. Where a later part begins isn't known yet: it is named."""
    folder = run_folder(recipe)
    found: dict[str, dict[str, object]] = {}
    if recipe.cold_start is not None:
        found["cold start"] = cold_start_overrides(recipe, cold_start_folder(recipe))
        recipe = replace(recipe, model=replace(recipe.model, path="<the model of the cold start>"))
    if not recipe.stages:
        return found | {recipe.name: overrides(recipe, folder)}
    model = recipe.model.path
    for stage in recipe.stages:
        part = stage_recipe(recipe, stage, model, recipe.tasks.train)
        found[part.name] = overrides(part, folder / part.name)
        model = f"<the model of {part.name}>"
    return found


def command(recipe: Recipe, folder: Path) -> list[str]:
    """verl's own, with all settings."""
    # Hydra would leave a folder of its own wherever it is called.
    own = [f"hydra.run.dir={folder}", "hydra.output_subdir=null"]
    # On a Ray cluster that is there already, verl's own process doesn't see this one's environment.
    own += as_arguments({f"+ray_kwargs.ray_init.runtime_env.env_vars.{FILE_LOGGER}": file_logger(folder)})
    return [sys.executable, "-m", "verl.trainer.main_ppo", *own, *as_arguments(overrides(recipe, folder))]


@contextmanager
def sandbox(recipe: Recipe, folder: Path) -> Iterator[Sequence[str]]:
    """The addresses of the recipe's sandbox; if it names none, those of a node that lives as long as the block."""
    if recipe.sandbox.addresses:
        yield recipe.sandbox.addresses
        return
    settings = msgspec.json.encode(recipe.sandbox).decode()
    rollouts = recipe.batch.prompts * recipe.sampled
    serve = [sys.executable, "-m", "cleaner_rl.train.node", settings, "0", str(rollouts)]
    with (folder / "sandbox.log").open("w+", encoding="utf-8") as log:
        node = started(serve, stdout=log, stderr=log)
        try:
            yield [_address(node, folder / "sandbox.log")]
        finally:
            end(node)


def _address(node: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + SANDBOX_SECONDS
    while time.monotonic() < deadline and node.poll() is None:
        # The first line of a node is the event "ready" with its address.
        line, newline, _ = log.read_text(encoding="utf-8").partition("\n")
        if newline and line.startswith('{"event":"ready"'):
            host, port = json.loads(line)["address"]
            return f"http://{host}:{port}"
        time.sleep(0.1)
    raise RecipeError(f"the sandbox didn't come up; {log} says why")


def _run(arguments: list[str], recipe: Recipe, folder: Path) -> None:
    # Ray's sockets need a short path, and its files must not outlive the run.
    temporary = tempfile.mkdtemp(prefix="ray")
    variables = {**os.environ, **environment(recipe), FILE_LOGGER: file_logger(folder), "RAY_TMPDIR": temporary}
    verl = started(arguments, env=variables)
    try:
        code = verl.wait()
    finally:
        end(verl)
        shutil.rmtree(temporary, ignore_errors=True)
    if code:
        raise TrainingFailedError(
            f"verl ended with code {code}; the reason stands above. The same command goes on from the last checkpoint"
        )


def file_logger(folder: Path) -> str:
    """Where verl's logger `file` writes, unless told otherwise. It empties its file first: each start has another."""
    number = len(list(folder.glob("verl-*.jsonl")))
    return os.environ.get(FILE_LOGGER) or str(folder / f"verl-{number}.jsonl")

"""Checks a recipe and runs it: first the checks that cost nothing, then the sandbox, then verl as a child process.

verl runs as its own program (`python -m verl.trainer.main_ppo`) with exactly the settings that `cleaner train
--dry-run` prints. It resumes from the last checkpoint if the run's folder holds one. Its output goes to a file in the
run's folder; `watch` says how the run is doing.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import msgspec

from cleaner_rl.train.launch.checks import (
    check_data,
    check_model,
    check_prompts,
    check_rows,
    check_settings,
    check_tasks,
    check_template,
    missing_data,
    model_config,
    task_count,
)
from cleaner_rl.train.launch.cold_start import (
    cold_start_command,
    cold_start_folder,
    cold_start_overrides,
    trained_model,
)
from cleaner_rl.train.launch.machine import check_machine
from cleaner_rl.train.launch.processes import end, end_marked, started
from cleaner_rl.train.launch.resume import DONE
from cleaner_rl.train.launch.rewind import checkpointed, next_start, set_aside
from cleaner_rl.train.launch.watch import Tell, Watch, tail
from cleaner_rl.train.recipe.load import read_recipe
from cleaner_rl.train.recipe.settings import Recipe, RecipeError, part_folders, run_folder
from cleaner_rl.train.recipe.stages import filtered, pass_rates, stage_recipe
from cleaner_rl.train.verl.overrides import FLASH, as_arguments, attention, environment, number, overrides
from cleaner_rl.train.verl.plan import RunPlan, lost_file
from cleaner_rl.train.verl.settings import ATTENTION, DeviceKind, Dtype, devices_of
from cleaner_rl.trajectory.store import BusyError, only_writer
from cleaner_sandbox import ended_by_signals

SANDBOX_SECONDS = 120.0
"""How long a sandbox node may take to start."""
FILE_LOGGER = "VERL_FILE_LOGGER_PATH"
RAY_FOLDER = "RAY_TMPDIR"
UNBUFFERED = {"PYTHONUNBUFFERED": "1"}
"""What verl prints is in its log at once, and in the order in which it was printed."""
NEEDED = ("torch", "transformers", "ray", "transfer_queue", "verl", "math_verify")
FLASH_PACKAGE = "flash_attn"
POLL_SECONDS = 0.5
"""Seconds between two looks at what verl has written."""
START_UP = {DeviceKind.GPU: "some minutes", DeviceKind.CPU: "one to three minutes"}
"""How long it takes until verl's first step or evaluation begins."""
NODE_DIED = "node has died"
"""What Ray prints when a process was lost with its machine."""
MACHINE_LOST = (
    "the machine that ran verl's trainer was lost, and with it the step. Start Ray and the sandbox node there again, "
    "or on another machine. Run the same command again"
)
COLD_START = "cold start"
"""The name of the part before all others."""
INSTALL = {
    DeviceKind.GPU: f"pip install 'cleaner-rl[verl]' vllm==0.27.1 (and flash-attn, or --set verl.{ATTENTION}=sdpa)",
    DeviceKind.CPU: "in a checkout, with python3.11: bash deploy/cpu-engine/install.sh FOLDER, then FOLDER/bin on PATH",
}
"""How to install what is missing."""


class TrainingFailedError(RuntimeError):
    """verl ended with an error; the message has the last lines of its output."""


@dataclass(frozen=True, slots=True)
class RecipeCheck:
    """The result of checking a recipe before it runs."""

    verl_settings: Mapping[str, Mapping[str, object]]
    """verl's configuration for each part of the run (the cold start, each stage), by the part's name."""
    missing_files: Sequence[str]
    """Files of the recipe that don't exist here; training needs them."""
    checked_by_verl: bool
    """Whether the installed verl has accepted the settings; False if verl isn't installed here."""


def check(recipe: Recipe | str | Path, settings: Iterable[str] = ()) -> RecipeCheck:
    """Check a recipe without running it; needs neither verl nor the model.

    Args:
        recipe: A recipe, or the path of its YAML file.
        settings: Overrides of a recipe file, such as "batch.prompts=64".

    Raises:
        RecipeError: The recipe can't be run; the message says why and what to change.

    Examples:
        >>> from cleaner_rl.train import check
        >>> found = check("recipes/saar-4b.yaml", ["run.steps=10"])
        >>> found.verl_settings["saar-4b"]["trainer.total_training_steps"]
        10
    """
    recipe = _read(recipe, settings)
    check_settings(recipe)
    return RecipeCheck(parts(recipe), missing_data(recipe), check_by_verl(recipe))


def check_by_verl(recipe: Recipe) -> bool:
    """Raise `RecipeError` if the installed verl can't run a recipe; return whether verl is installed."""
    if find_spec("verl") is None:
        return False
    from cleaner_rl.train.verl.compat import broken_hooks, refusals

    problems = broken_hooks()
    for name, values in parts(recipe).items():
        problems += refusals(as_arguments(values), "sft_trainer_engine" if name == COLD_START else "ppo_trainer")
    if problems:
        raise RecipeError("\n".join(problems))
    return True


def train(
    recipe: Recipe | str | Path,
    settings: Iterable[str] = (),
    *,
    tell: Tell = lambda _: None,
    evaluated: Callable[[], str | None] = lambda: None,
) -> Path:
    """Train by a recipe until it is finished, and return the run's folder.

    The same call resumes a run that was interrupted, from its last checkpoint. It needs verl and an inference engine
    (docs/train.md). The folder holds the trajectories, the metrics, the checkpoints and verl's output.

    Args:
        recipe: A recipe, or the path of its YAML file.
        settings: Overrides of a recipe file, such as "batch.prompts=64".
        tell: Takes the lines that say how the run is doing: what is started, and one line per step.
        evaluated: Called after each evaluation on held-out tasks, when its rollouts are stored; what it returns is
            told.

    Raises:
        RecipeError: The recipe can't be run; the message says why and what to change.
        TrainingFailedError: verl ended with an error.

    Example:
        ```python
        from cleaner_rl.evaluate import train_report
        from cleaner_rl.train import train

        folder = train("recipes/saar-4b.yaml", ["run.steps=10"], tell=print)
        print(train_report(folder))
        ```
    """
    recipe = _read(recipe, settings)
    devices = devices_of(recipe)
    needed = [*NEEDED, devices.engine, *([FLASH_PACKAGE] if attention(recipe) == FLASH else [])]
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise RecipeError(f"not installed here: {', '.join(missing)}; {INSTALL[devices.kind]} (docs/train.md)")
    check_settings(recipe)
    check_data(recipe)
    tell(_first_words(recipe))
    check_machine(recipe)
    check_rows(recipe)
    check_tasks(recipe)
    folder = run_folder(recipe)
    check_model(recipe, model_config(recipe.model.path))
    chat = check_template(recipe, folder)
    check_prompts(recipe, lambda messages: len(chat.prompt(messages)))
    check_by_verl(recipe)
    with ended_by_signals(), _alone_in(folder):
        if recipe.cold_start is not None:
            recipe = cold_started(recipe, tell)
        if recipe.stages:
            _train_stages(recipe, tell, evaluated)
        else:
            _train_once(recipe, folder, tell, evaluated)
    return folder


def _first_words(recipe: Recipe) -> str:
    """Say what is being started, and how long it takes until something happens."""
    device, folder = devices_of(recipe), part_folders(recipe)[0]
    parts_of = f"{len(recipe.stages)} stages" if recipe.stages else f"{_steps(recipe) or '?'} steps"
    devices = device.count
    one, several = ("GPU", "GPUs") if device.kind is DeviceKind.GPU else ("CPU process", "CPU processes")
    words = (
        f"Training {recipe.name} with {recipe.method}: {parts_of} of {recipe.batch.prompts} prompts x "
        f"{recipe.sampled} rollouts, {devices} {one if devices == 1 else several}, folder {run_folder(recipe)}."
    )
    if recipe.cold_start is not None and not (cold_start_folder(recipe) / DONE).exists():
        words += " A cold start comes first."
    elif last := checkpointed(folder):
        words += f" It resumes after step {last}."
    return f"{words} Start-up takes {START_UP[device.kind]}."


def _steps(recipe: Recipe) -> int:
    """Return how many steps a run has; 0 if that is unknown."""
    epochs = int(number(overrides(recipe, run_folder(recipe)), "trainer.total_epochs"))
    return recipe.run.steps or (task_count(recipe) or 0) // recipe.batch.prompts * epochs


def _read(recipe: Recipe | str | Path, settings: Iterable[str]) -> Recipe:
    if not isinstance(recipe, Recipe):
        return read_recipe(recipe, settings)
    if list(settings):
        raise RecipeError("settings override a recipe file; use dataclasses.replace to change a Recipe")
    return recipe


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Lock a folder: two runs in it would write one store and resume from each other's checkpoints."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with only_writer(folder / ".lock"):
            yield
    except BusyError as error:
        raise RecipeError(str(error)) from None


def _train_once(recipe: Recipe, folder: Path, tell: Tell, evaluated: Callable[[], str | None]) -> None:
    set_aside(folder, evaluates=bool(overrides(recipe, folder)["trainer.val_before_train"]))
    with sandbox(recipe, folder) as addresses:
        RunPlan(recipe, tuple(addresses), folder).write()
        watch = Watch(Path(file_logger(folder)), tell, evaluated, _steps(recipe))
        try:
            _run(command(recipe, folder), recipe, folder, watch, lambda: next_start(folder))
        finally:
            name_dtype(folder / "checkpoints", devices_of(recipe).dtype)


def name_dtype(checkpoints: Path, dtype: Dtype) -> None:
    """Write into the configuration of each saved model the dtype in which the run's engine served it.

    verl always writes bfloat16 there, and engines believe it: a model of a run in float32 would score otherwise.
    """
    for file in checkpoints.glob("global_step_*/actor/huggingface/config.json"):
        config = json.loads(file.read_text(encoding="utf-8"))
        named = {**config, **{key: dtype.value for key in ("dtype", "torch_dtype") if key in config}}
        if named != config:
            beside = file.with_suffix(".tmp")
            beside.write_text(json.dumps(named, indent=2) + "\n", encoding="utf-8")
            beside.replace(file)


def _train_stages(recipe: Recipe, tell: Tell, evaluated: Callable[[], str | None]) -> None:
    """Train one stage after the other; skip a finished one, resume an interrupted one."""
    model, tasks = recipe.model.path, list(recipe.tasks.train)
    before: Path | None = None
    for stage, own in zip(recipe.stages, part_folders(recipe), strict=True):
        if before is not None and (stage.min_pass_rate, stage.max_pass_rate) != (0.0, 1.0):
            tasks = filtered(tasks, pass_rates(before / "trajectories"), stage, own)
        part = stage_recipe(recipe, stage, model, tasks)
        if not (own / DONE).exists():
            tell(f"Stage {stage.name}: {stage.steps} steps.")
            check_rows(part)
            own.mkdir(parents=True, exist_ok=True)
            _train_once(part, own, tell, evaluated)
            (own / DONE).touch()
        model = str(_model_of(own / "checkpoints"))
        before = own


def _model_of(checkpoints: Path) -> Path:
    model = trained_model(checkpoints)
    if model is None:
        raise TrainingFailedError(
            f"no model was saved below {checkpoints}; set verl.trainer.save_freq so that the last step is saved"
        )
    return model


def cold_started(recipe: Recipe, tell: Tell = lambda _: None) -> Recipe:
    """Return the recipe with the model of its cold start, which runs now unless it is finished already."""
    checkpoints = cold_start_folder(recipe)
    done = checkpoints / DONE
    if not done.exists():
        with _alone_in(checkpoints):
            tell(f"Cold start: supervised fine-tuning into {checkpoints}.")
            watch = Watch(Path(file_logger(checkpoints)), tell)
            again = "The same command begins the cold start again."
            _run(cold_start_command(recipe, checkpoints), recipe, checkpoints, watch, lambda: again)
            done.touch()
    return replace(recipe, model=replace(recipe.model, path=str(_model_of(checkpoints))))


def parts(recipe: Recipe) -> dict[str, dict[str, object]]:
    """Return verl's settings for each part of a run, by name; the model of a later part is a placeholder."""
    folder = run_folder(recipe)
    found: dict[str, dict[str, object]] = {}
    if recipe.cold_start is not None:
        found[COLD_START] = cold_start_overrides(recipe, cold_start_folder(recipe))
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
    """Return the command that starts verl's trainer with all settings."""
    # Hydra would leave a folder of its own wherever it is called.
    own = [f"hydra.run.dir={folder}", "hydra.output_subdir=null"]
    # On a Ray cluster that is there already, verl's own process doesn't see this one's environment.
    own += as_arguments({f"+ray_kwargs.ray_init.runtime_env.env_vars.{FILE_LOGGER}": file_logger(folder)})
    return [sys.executable, "-m", "verl.trainer.main_ppo", *own, *as_arguments(overrides(recipe, folder))]


@contextmanager
def sandbox(recipe: Recipe, folder: Path) -> Iterator[Sequence[str]]:
    """Yield the addresses of the recipe's sandbox; if it names none, start a node that lives as long as the block."""
    if recipe.sandbox.addresses:
        yield recipe.sandbox.addresses
        return
    settings = msgspec.json.encode(recipe.sandbox).decode()
    rollouts = recipe.batch.prompts * recipe.sampled
    serve = [sys.executable, "-m", "cleaner_rl.train.launch.node", settings, "0", str(rollouts)]
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
    raise RecipeError(f"the sandbox node didn't start; read {log}")


def _variables(recipe: Recipe, folder: Path) -> dict[str, str]:
    """Return the variables of verl's processes; its loggers write into the run's folder unless they have a place."""
    # For Ray, a rank on the CPU is a GPU. It would not start if this variable hid all GPUs, as people set it on a CPU.
    hidden = {"CUDA_VISIBLE_DEVICES"} if devices_of(recipe).kind is DeviceKind.CPU else set()
    place = folder.absolute()  # Ray's workers have folders of their own
    return {
        "TENSORBOARD_DIR": str(place / "tensorboard"),
        "WANDB_DIR": str(place),
        "TRACKIO_DIR": str(place / "trackio"),
        "SWANLAB_LOG_DIR": str(place / "swanlab"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{place / 'mlflow.db'}",
        **{name: value for name, value in os.environ.items() if name not in hidden},
        **environment(recipe),
        FILE_LOGGER: file_logger(folder),
        **UNBUFFERED,
    }


def _run(arguments: list[str], recipe: Recipe, folder: Path, watch: Watch, next_start: Callable[[], str]) -> None:
    """Run a program of verl's to its end; `next_start` says what the same command would do next."""
    # Ray's sockets need a short path, and its files must not outlive the run.
    temporary = tempfile.mkdtemp(prefix="ray")
    variables = {**_variables(recipe, folder), RAY_FOLDER: temporary}
    lost_file(folder).unlink(missing_ok=True)
    log = folder / f"verl-{_start_number(folder)}.log"
    watch.tell(f"Starting verl; its output is in {log}.")
    with log.open("wb") as output:
        verl = started(arguments, env=variables, stdout=output, stderr=output)
    ended_early = True
    try:
        while (code := verl.poll()) is None:
            watch.poll()
            with suppress(subprocess.TimeoutExpired):
                verl.wait(POLL_SECONDS)
        watch.poll()
        ended_early = False
    finally:
        if ended_early:
            watch.tell("Stopping verl and the sandbox.")
        end(verl)
        # Ray's own processes end some seconds later by themselves, and would make their folder anew.
        end_marked(RAY_FOLDER, temporary)
        shutil.rmtree(temporary, ignore_errors=True)
        if ended_early:
            watch.tell(next_start())
    if code:
        last = tail(log)
        ended = f"verl ended with exit code {code}; the last lines of {log}:\n\n{last}\n\n{next_start()}"
        raise TrainingFailedError(_lost(folder, last) + ended)


def _lost(folder: Path, last: str) -> str:
    """Say which part of the run was lost; empty if none was."""
    file = lost_file(folder)
    if file.exists():
        return f"{file.read_text(encoding='utf-8')}\n"
    # The process that would have written the file can be lost with its machine, and Ray's client has only words for it.
    return f"{MACHINE_LOST}\n\n" if NODE_DIED in last else ""


def _start_number(folder: Path) -> int:
    """Return the number of the next start of verl in this folder."""
    found = [path.stem.removeprefix("verl-") for path in folder.glob("verl-*.*")]
    return max((int(number) + 1 for number in found if number.isdecimal()), default=0)


def file_logger(folder: Path) -> str:
    """Return where verl's logger `file` writes: one file per start, because verl empties the file first."""
    return os.environ.get(FILE_LOGGER) or str(folder / f"verl-{_start_number(folder)}.jsonl")

"""Checks a recipe before anything starts; verl would report the same problems minutes later, less clearly."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from cleaner_rl.tasks import (
    MathPool,
    Message,
    Task,
    UngradableError,
    check_gradable,
    load_prompt,
    read_verl,
)
from cleaner_rl.train.launch.cold_start import cold_start_folder
from cleaner_rl.train.launch.resume import check_folder
from cleaner_rl.train.recipe.enums import TrainerMode
from cleaner_rl.train.recipe.settings import Recipe, RecipeError, run_folder
from cleaner_rl.train.recipe.stages import stage_recipe
from cleaner_rl.train.verl.overrides import overrides

if TYPE_CHECKING:
    from cleaner_rl.rollout import ChatRenderer, Sandbox

CONFIG = "config.json"
TASK_FILES = (".parquet", ".json", ".jsonl")
STRATEGIES = ("fsdp", "fsdp2")
"""verl's backends that the settings of a recipe fit."""


def check_settings(recipe: Recipe) -> None:
    """Run all checks that need no data and no engine; `--dry-run` runs them too."""
    check_sizes(recipe)
    check_backend(recipe)
    check_lora(recipe)
    check_sandbox(recipe)
    check_prompt(recipe)
    check_folder(recipe)
    if (config := config_at_hand(recipe.model.path)) is not None:
        check_model(recipe, config)


def check_backend(recipe: Recipe) -> None:
    """Raise `RecipeError` if verl would train with another backend than FSDP, or in a mode that can't start."""
    settings = overrides(recipe, run_folder(recipe))
    engine, strategy = settings.get("model_engine", "dp"), settings["actor_rollout_ref.actor.strategy"]
    if engine != "dp" or strategy not in STRATEGIES:
        named = f"actor_rollout_ref.actor.strategy is {strategy}" if engine == "dp" else f"model_engine is {engine}"
        raise RecipeError(
            f"verl.{named}, but cleaner-rl trains with FSDP only: remove it, or take the strategy "
            f"{' or '.join(STRATEGIES)}"
        )
    if recipe.device.mode is not TrainerMode.SEPARATE_ASYNC:
        return
    updates = settings["trainer.v1.separate_async.parameter_sync_step"]
    if recipe.batch.prompts != recipe.batch.mini_batch * int(str(updates)):
        raise RecipeError(
            f"device.mode separate_async makes {updates} updates per step, but batch.prompts={recipe.batch.prompts} "
            f"are not {updates} x batch.mini_batch={recipe.batch.mini_batch}: change one of them, or "
            "verl.trainer.v1.separate_async.parameter_sync_step"
        )


def check_lora(recipe: Recipe) -> None:
    """Raise `RecipeError` if adapters would be trained that an engine or a checkpoint doesn't get as they are."""
    settings, lora = overrides(recipe, run_folder(recipe)), "actor_rollout_ref.model.lora"
    if recipe.model.lora is None:
        if rank := settings.get(f"{lora}_rank"):
            raise RecipeError(
                f"verl.{lora}_rank is {rank}, but verl alone saves adapters in a form that can't be loaded as a model: "
                "set model.lora.rank and model.lora.alpha instead"
            )
        return
    if not settings[f"{lora}.merge"]:
        raise RecipeError(
            f"verl.{lora}.merge is false, but vLLM for CPUs can't re-score with adapters of its own, and in the mode "
            "separate_async verl doesn't send them: remove it, and adapters are merged before each transfer"
        )


def check_prompt(recipe: Recipe) -> None:
    """Raise `RecipeError` if the recipe's prompt can't be read; a file that doesn't exist is named with the others."""
    if recipe.prompt in missing_data(recipe):
        return
    try:
        load_prompt(recipe.prompt)
    except (OSError, ValueError, LookupError) as error:
        raise RecipeError(f"tasks.prompt is '{recipe.prompt}', which can't be read: {error}") from None


def check_sandbox(recipe: Recipe) -> None:
    """Raise `RecipeError` if several machines would share a sandbox that serves only one."""
    if recipe.device.nodes > 1 and not recipe.sandbox.addresses:
        raise RecipeError(
            f"device.nodes is {recipe.device.nodes}, but a sandbox started here serves only this machine: start nodes "
            "(deploy/README.md), and set sandbox.addresses and sandbox.token_file"
        )


def check_sizes(recipe: Recipe) -> None:
    """Raise `RecipeError` if the devices can't share a mini-batch evenly."""
    ranks, batch = recipe.device.nodes * recipe.device.per_node, recipe.batch
    rows = batch.mini_batch * recipe.rows
    twice = "2 x " if recipe.purify.views.two_rows else ""
    one_more = " + 1 for rescue.rows=join" if recipe.rows % batch.rollouts else ""
    if rows % (ranks * batch.micro_batch):
        raise RecipeError(
            f"a mini-batch has {rows} sequences, which {ranks} devices can't compute {batch.micro_batch} at a time: "
            f"batch.mini_batch x ({twice}batch.rollouts{one_more}) must be a multiple of the devices times "
            "batch.micro_batch"
        )


def missing_data(recipe: Recipe) -> list[str]:
    """Return the recipe's files that don't exist here; addresses such as `hdfs://…` are left to verl."""
    files = [*recipe.tasks.train, *recipe.tasks.held_out]
    if recipe.prompt.endswith(".toml"):
        files.append(recipe.prompt)
    if recipe.cold_start is not None and not (cold_start_folder(recipe) / "done").exists():
        files += recipe.cold_start.demonstrations
    return [file for file in dict.fromkeys(files) if "://" not in file and not Path(file).exists()]


def check_data(recipe: Recipe) -> None:
    """Raise `RecipeError` if a file of the recipe doesn't exist here, or is of a kind that verl can't read."""
    if missing := missing_data(recipe):
        raise RecipeError(
            f"these files don't exist: {', '.join(missing)}; docs/train.md says how to make them (Prepare the data)"
        )
    model = Path(recipe.model.path).expanduser()
    if (model.is_absolute() or recipe.model.path.startswith(".")) and not model.exists():
        raise RecipeError(
            f"model.path is {recipe.model.path}, which doesn't exist; give the folder of a model, or a name on the hub"
        )
    for file in (*recipe.tasks.train, *recipe.tasks.held_out):
        if "://" not in file and not file.endswith(TASK_FILES):
            raise RecipeError(f"{file} can't hold tasks: verl reads files that end with {', '.join(TASK_FILES)}")


def task_count(recipe: Recipe) -> int | None:
    """Return how many tasks a recipe trains on; None if they are in another format or at an address, as verl allows."""
    import pyarrow.parquet as pq
    from pyarrow.lib import ArrowException

    files = [Path(file) for file in recipe.tasks.train]
    if not all(file.is_file() and file.suffix == ".parquet" for file in files):
        return None
    try:
        return sum(int(pq.read_metadata(file).num_rows) for file in files)
    except ArrowException as error:
        raise RecipeError(f"tasks.train can't be read as Parquet: {error}") from None


def check_rows(recipe: Recipe) -> None:
    """Raise `RecipeError` if the tasks don't fill one batch: verl would never take a step."""
    rows = task_count(recipe)
    if rows is not None and rows < recipe.batch.prompts:
        raise RecipeError(
            f"{', '.join(recipe.tasks.train)}: {rows} tasks, fewer than the batch.prompts={recipe.batch.prompts} of "
            "one step; lower it (and batch.mini_batch), or add tasks; in a stage, widen the bounds of its pass rates"
        )


def check_tasks(recipe: Recipe) -> None:
    """Raise `RecipeError` if a task can't be graded: each of its rollouts would be a fault."""
    from cleaner_rl.rollout import standard_graders

    try:
        with MathPool() as pool:
            # Nothing is graded here, so the graders need no sandbox.
            check_gradable(read_tasks(recipe), standard_graders(cast("Sandbox", None), pool))
    except UngradableError as error:
        raise RecipeError(f"{error}\nCorrect these tasks in tasks.train and tasks.held_out, or remove them") from None


def read_tasks(recipe: Recipe) -> Iterator[Task]:
    """Yield all tasks of a recipe's files; addresses and verl's other formats are left to verl."""
    from pyarrow.lib import ArrowException

    for file in map(Path, (*recipe.tasks.train, *recipe.tasks.held_out)):
        if file.is_file() and file.suffix == ".parquet":
            try:
                yield from read_verl(file)
            except (ArrowException, LookupError, TypeError, ValueError) as error:
                raise RecipeError(
                    f"{file} holds no tasks in verl's format: {error}; `cleaner_rl.tasks.write_verl` writes them"
                ) from None


def check_template(recipe: Recipe, folder: Path) -> ChatRenderer:
    """Return the model's chat renderer, and keep its tokenizer in `folder`; raise `RecipeError` if it can't be used."""
    from transformers import AutoTokenizer

    from cleaner_rl.rollout import ChatError, ChatRenderer

    try:
        tokenizer = AutoTokenizer.from_pretrained(recipe.model.path)
    except (OSError, ValueError) as error:
        raise RecipeError(_not_loaded("tokenizer", recipe.model.path, error)) from None
    prompt = load_prompt(recipe.prompt)
    try:
        chat = ChatRenderer(tokenizer, prompt.tools, in_template=prompt.in_template, options=recipe.model.template)
    except ChatError as error:
        raise RecipeError(f"the chat template of {recipe.model.path} can't be used: {error}") from None
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))  # for the viewer
    return chat


def check_prompts(recipe: Recipe, tokens: Callable[[Sequence[Message]], int]) -> None:
    """Raise `RecipeError` if a prompt has more `tokens` than budget.prompt_tokens."""
    prompt, most, frame = load_prompt(recipe.prompt), recipe.budget.prompt_tokens, 0
    long: dict[str, int] = {}
    for task in read_tasks(recipe):
        messages = prompt.messages(task)
        frame = frame or tokens(messages)
        # A token has at least one byte, so most of many thousand prompts are short enough without being rendered.
        if frame + sum(len(each.content.encode()) for each in task.prompt) > most:
            count = tokens(messages)
            long |= {task.id: count} if count > most else {}
    if long:
        longest = max(long, key=long.__getitem__)
        raise RecipeError(
            f"{len(long)} tasks have prompts of more than budget.prompt_tokens={most} tokens, the longest, {longest}, "
            f"has {long[longest]}: raise budget.prompt_tokens, or remove these tasks"
        )


def config_at_hand(model: str) -> dict[str, Any] | None:
    """Return a model's configuration if it is on this machine, in a folder or in the hub's cache; else None."""
    file: object = Path(model) / CONFIG
    if not Path(model).is_dir() and find_spec("huggingface_hub") is not None:
        from huggingface_hub import try_to_load_from_cache

        with suppress(ValueError):  # it isn't a name of the hub's either
            file = try_to_load_from_cache(model, CONFIG)
    try:
        config = json.loads(Path(str(file)).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return config.get("text_config", config) if isinstance(config, dict) else None


def model_config(model: str) -> dict[str, Any]:
    """Return a model's configuration, from the hub if it isn't here; raise `RecipeError` if there is none."""
    if (found := config_at_hand(model)) is not None:
        return found
    from transformers import AutoConfig

    try:
        config: dict[str, Any] = AutoConfig.from_pretrained(model).get_text_config().to_dict()
    except (OSError, ValueError) as error:
        raise RecipeError(_not_loaded("configuration", model, error)) from None
    return config


def _not_loaded(what: str, model: str, error: Exception) -> str:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return (
        f"the {what} of model.path={model} can't be loaded: {reason} Give the folder of a model, or its name on the hub"
    )


def check_model(recipe: Recipe, config: Mapping[str, Any]) -> None:
    """Raise `RecipeError` if rollouts need more positions than the model has, or a replica can't be divided."""
    heads, parallel = config.get("num_attention_heads"), recipe.device.tensor_parallel
    if isinstance(heads, int) and heads % parallel:
        raise RecipeError(
            f"device.tensor_parallel is {parallel}, which doesn't divide the {heads} attention heads of "
            f"{recipe.model.path}"
        )
    positions = config.get("max_position_embeddings")
    for part in [stage_recipe(recipe, stage, "", []) for stage in recipe.stages] or [recipe]:
        settings = overrides(part, run_folder(recipe))
        window = settings["actor_rollout_ref.rollout.max_model_len"]
        stretched = settings.get("+actor_rollout_ref.model.override_config.max_position_embeddings", positions)
        if isinstance(stretched, int) and isinstance(window, int) and window > stretched:
            lookahead = f" + budget.lookahead_tokens={part.budget.lookahead_tokens}" if part.method.saar else ""
            raise RecipeError(
                f"budget.prompt_tokens={part.budget.prompt_tokens} + budget.response_tokens="
                f"{part.budget.response_tokens}{lookahead} are {window} tokens, but {recipe.model.path} has "
                f"positions for {stretched}: lower one of them"
            )

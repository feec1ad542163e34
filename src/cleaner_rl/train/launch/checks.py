"""Checks a recipe before anything starts; verl would report the same problems minutes later, less clearly."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from cleaner_rl.tasks import (
    AnyGrader,
    MathPool,
    Message,
    Task,
    UngradableError,
    WrongGradeError,
    check_gradable,
    grade,
    load_prompt,
    read_verl,
)
from cleaner_rl.train.launch.cold_start import cold_start_folder, demonstrations
from cleaner_rl.train.launch.resume import check_folder
from cleaner_rl.train.launch.verl_checks import (
    PARALLEL,
    check_heads,
    check_loggers,
    check_sequences,
    is_dynamic,
    sequence_parallel,
)
from cleaner_rl.train.recipe.enums import Method
from cleaner_rl.train.recipe.settings import Recipe, RecipeError, run_folder
from cleaner_rl.train.recipe.stages import stage_recipe
from cleaner_rl.train.rows import GraftLogprobs
from cleaner_rl.train.verl.custom_reward import CUSTOM, custom_graders, graded_by, has_custom_reward
from cleaner_rl.train.verl.custom_reward import KEY as CUSTOM_KEY
from cleaner_rl.train.verl.overrides import number, overrides
from cleaner_rl.train.verl.settings import (
    ACTOR,
    DTYPE,
    KEEP,
    KEYS,
    LORA_RANK,
    MICRO_BATCH,
    MODEL,
    ROLLOUT,
    DeviceKind,
    Dtype,
    TrainerMode,
    devices_of,
    template_of,
)
from cleaner_rl.trajectory import Trajectory, Turn, token_span

if TYPE_CHECKING:
    from cleaner_rl.rollout import ChatRenderer, Sandbox

CONFIG = "config.json"
TASK_FILES = (".parquet", ".json", ".jsonl")
STRATEGIES = ("fsdp", "fsdp2")
"""verl's backends that the settings of a recipe fit."""


def check_settings(recipe: Recipe) -> None:
    """Run all checks that need no data and no engine; `--dry-run` runs them too."""
    check_method(recipe)
    check_exactness(recipe)
    check_engine(recipe)
    check_sequences(recipe)
    check_sizes(recipe)
    check_loggers(recipe)
    check_backend(recipe)
    check_lora(recipe)
    check_sandbox(recipe)
    check_prompt(recipe)
    check_graders(recipe)
    check_folder(recipe)
    if (config := config_at_hand(recipe.model.path)) is not None:
        check_model(recipe, config)


def check_method(recipe: Recipe) -> None:
    """Raise `RecipeError` if a recipe is DAPO in part only, or in all but its name; and for one kept checkpoint."""
    settings = overrides(recipe, run_folder(recipe))
    low, high = f"{ACTOR}.clip_ratio_low", f"{ACTOR}.clip_ratio_high"
    missing = [
        remedy
        for remedy, there in {
            "batch.dynamic_sampling=true": recipe.batch.dynamic_sampling,
            "budget.overlong_buffer above 0": recipe.budget.overlong_buffer > 0,
            f"verl.{high} above {low}": number(settings, high) > number(settings, low),
            f"verl.{ACTOR}.loss_agg_mode=token-mean": settings[f"{ACTOR}.loss_agg_mode"] == "token-mean",
        }.items()
        if not there
    ]
    if recipe.method is Method.DAPO and missing:
        raise RecipeError(
            f"method is dapo, but a part of DAPO is missing: set {', '.join(missing)}, or take method grpo"
        )
    if recipe.method is Method.GRPO and not missing:
        raise RecipeError(
            "method is grpo, the baseline without dynamic sampling, but this recipe has all of DAPO's parts: "
            "set batch.dynamic_sampling=false, or take method dapo"
        )
    if settings[KEEP] == 1:
        # verl removes the old one before it notes the new one as the last.
        raise RecipeError(f"verl.{KEEP} is 1, and killed in between a run would have none: take 2 or more, or null")


def check_exactness(recipe: Recipe) -> None:
    """Raise `RecipeError` if edited tokens would be scored or weighted otherwise than they were sampled."""
    if not recipe.method.edits:
        return
    settings = overrides(recipe, run_folder(recipe))
    for key in (f"{ROLLOUT}.temperature", f"{ROLLOUT}.top_p"):
        if number(settings, key) != 1:
            raise RecipeError(
                f"verl.{key} is {settings[key]}, but edited tokens are re-scored, and an engine scores at temperature "
                "1 and top-p 1 only: leave it out"
            )
    correction = "algorithm.rollout_correction.rollout_is"
    if recipe.purify.graft_logprobs is GraftLogprobs.SAMPLED and settings[correction] == "sequence":
        raise RecipeError(
            f"purify.graft_logprobs is sampled, which weighs grafted tokens one by one, but verl.{correction} is "
            "sequence, where a graft's weight would spread over its whole trajectory: take token, or rescored"
        )


def check_engine(recipe: Recipe) -> None:
    """Raise `RecipeError` for an engine that doesn't run here, or that the devices can't be shared out to."""
    devices = devices_of(recipe)
    engines = ("vllm",) if devices.kind is DeviceKind.CPU else ("vllm", "sglang")
    if devices.engine not in engines:
        raise RecipeError(
            f"verl.{KEYS['engine']} is '{devices.engine}'; on a {devices.kind} it can be {' or '.join(engines)}"
        )
    if devices.kind is DeviceKind.CPU and devices.dtype is not Dtype.FLOAT32:
        raise RecipeError(
            f"verl.{DTYPE} must be float32 on a cpu: with less, rollout and training disagree about log-probs"
        )
    # A replica fills part of a machine, or several machines.
    parallel, here = devices.tensor_parallel, devices.per_node
    named = f"verl.{KEYS['tensor_parallel']} is {parallel}"
    if parallel <= here and here % parallel:
        raise RecipeError(
            f"{named}, which doesn't divide trainer.n_gpus_per_node={here}: "
            f"take {' or '.join(str(each) for each in range(1, here + 1) if here % each == 0)}"
        )
    if parallel > here and (parallel % here or devices.count % parallel):
        several = f", or a multiple of it that divides {devices.count}" if devices.nodes > 1 else ""
        raise RecipeError(
            f"{named}, but trainer.nnodes x trainer.n_gpus_per_node are {devices.count} devices: "
            f"take a divisor of {here}{several}"
        )


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
    if devices_of(recipe).mode is not TrainerMode.SEPARATE_ASYNC:
        return
    updates = settings["trainer.v1.separate_async.parameter_sync_step"]
    if recipe.batch.prompts != recipe.batch.mini_batch * int(str(updates)):
        raise RecipeError(
            f"the mode separate_async makes {updates} updates per step, but batch.prompts={recipe.batch.prompts} "
            f"are not {updates} x batch.mini_batch={recipe.batch.mini_batch}: change one of them, or "
            "verl.trainer.v1.separate_async.parameter_sync_step"
        )


def check_lora(recipe: Recipe) -> None:
    """Raise `RecipeError` if adapters would be trained that an engine or a checkpoint doesn't get as they are."""
    settings, merge = overrides(recipe, run_folder(recipe)), f"{MODEL}.lora.merge"
    if settings.get(LORA_RANK) and not settings[merge]:
        raise RecipeError(
            f"verl.{merge} is false, but vLLM for CPUs can't re-score with adapters of its own, and in the mode "
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


def check_graders(recipe: Recipe) -> None:
    """Raise `RecipeError` for a weight that no grader has; functions in files are loaded when a run starts."""
    from cleaner_rl.rollout import check_weights, standard_graders

    named = {name: weight for name, weight in recipe.tasks.graders.items() if ":" not in name}
    # Only names are compared: what makes these two is loaded when a run starts.
    later = dict.fromkeys(["math", *[CUSTOM] * has_custom_reward(recipe)], cast("AnyGrader", None))
    try:
        check_weights(named, standard_graders(cast("Sandbox", None), None, later))
    except ValueError as error:
        raise RecipeError(f"tasks.graders can't be used: {error}") from None


def check_sandbox(recipe: Recipe) -> None:
    """Raise `RecipeError` if several machines would share a sandbox that serves only one."""
    nodes = devices_of(recipe).nodes
    if nodes > 1 and not recipe.sandbox.addresses:
        raise RecipeError(
            f"verl.trainer.nnodes is {nodes}, but a sandbox started here serves only this machine: start nodes "
            "(deploy/README.md), and set sandbox.addresses and sandbox.token_file"
        )


def check_sizes(recipe: Recipe) -> None:
    """Raise `RecipeError` if the devices can't share a mini-batch evenly."""
    devices, batch, settings = devices_of(recipe), recipe.batch, overrides(recipe, run_folder(recipe))
    parallel = sequence_parallel(settings)
    ranks, micro = devices.count // parallel, 1 if is_dynamic(settings) else devices.micro_batch
    rows = batch.mini_batch * recipe.rows
    twice = "2 x " if recipe.purify.views.two_rows else ""
    one_more = " + 1 for rescue.rows=join" if recipe.rows % batch.rollouts else ""
    if rows % (ranks * micro):
        shared = f" / verl.{PARALLEL[0]}" if parallel > 1 else ""
        times = f" times verl.{MICRO_BATCH}" if micro > 1 else ""
        raise RecipeError(
            f"a mini-batch has {rows} sequences, which {ranks} devices can't compute {micro} at a time: "
            f"batch.mini_batch x ({twice}batch.rollouts{one_more}) must be a multiple of the devices{shared}{times}"
        )


def missing_data(recipe: Recipe) -> list[str]:
    """Return the recipe's files that don't exist here; addresses such as `hdfs://…` are left to verl."""
    files = [*recipe.tasks.train, *recipe.tasks.held_out]
    if recipe.prompt.endswith(".toml"):
        files.append(recipe.prompt)
    if recipe.cold_start is not None and not (cold_start_folder(recipe) / "done").exists():
        files += demonstrations(recipe)
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
    """Raise `RecipeError` if a task can't be graded, or a weighted grader can't: each rollout would be a fault."""
    from cleaner_rl.rollout import check_weights, standard_graders

    with MathPool() as pool:
        try:
            # Nothing but functions is asked here, so the graders need no sandbox.
            graders = standard_graders(cast("Sandbox", None), pool, custom_graders(recipe, _NoTokenizer()))
            check_weights(recipe.tasks.graders, graders)
        except (ValueError, ImportError, OSError) as error:
            raise RecipeError(f"tasks.graders or verl.{CUSTOM_KEY} can't be used: {error}") from None
        try:
            check_gradable((graded_by(recipe, task) for task in read_tasks(recipe)), graders)
        except UngradableError as error:
            raise RecipeError(
                f"{error}\nCorrect these tasks in tasks.train and tasks.held_out, or remove them"
            ) from None
        if (task := next(read_tasks(recipe), None)) is not None:
            names = [CUSTOM] * has_custom_reward(recipe) + [name for name in recipe.tasks.graders if ":" in name]
            asyncio.run(_try_functions(task, names, graders))


async def _try_functions(task: Task, names: Sequence[str], graders: Mapping[str, AnyGrader]) -> None:
    """Raise `RecipeError` if a function returns no grade for an empty rollout; one that raises then is left alone."""
    empty = Trajectory(token_span("", ()), (Turn(token_span("", ())),))
    for name in names:
        try:
            await grade(task, "", graders, name=name, rollout=empty, attempts=1)
        except WrongGradeError as error:
            raise RecipeError(f"{error}; it was asked about an empty rollout") from None


class _NoTokenizer:
    def decode(self, *_: object, **__: object) -> str:
        """Return the text of an empty rollout."""
        return ""


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
        chat = ChatRenderer.for_prompt(tokenizer, prompt, options=template_of(recipe), family=recipe.model.renderer)
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
    heads, parallel = config.get("num_attention_heads"), devices_of(recipe).tensor_parallel
    if isinstance(heads, int) and heads % parallel:
        raise RecipeError(
            f"verl.{KEYS['tensor_parallel']} is {parallel}, which doesn't divide the {heads} attention heads of "
            f"{recipe.model.path}"
        )
    check_heads(recipe, config)
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

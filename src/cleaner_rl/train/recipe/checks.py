"""Checks a recipe before anything starts; verl would report the same problems minutes later, less clearly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cleaner_rl.tasks import Message, load_prompt, read_verl
from cleaner_rl.train.launch.cold_start import cold_start_folder
from cleaner_rl.train.launch.resume import check_folder
from cleaner_rl.train.recipe.settings import Recipe, RecipeError, run_folder
from cleaner_rl.train.recipe.stages import stage_recipe
from cleaner_rl.train.verl.overrides import overrides

if TYPE_CHECKING:
    from cleaner_rl.rollout import ChatRenderer


def check_settings(recipe: Recipe) -> None:
    """Run all checks that need no data, model or engine; `--dry-run` runs them too."""
    check_sizes(recipe)
    check_sandbox(recipe)
    check_folder(recipe)


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
    rows = batch.mini_batch * batch.rollouts
    if rows % (ranks * batch.micro_batch):
        raise RecipeError(
            f"a mini-batch has {rows} sequences, which {ranks} devices can't compute {batch.micro_batch} at a time: "
            "batch.mini_batch x batch.rollouts must be a multiple of the devices times batch.micro_batch"
        )


def missing_data(recipe: Recipe) -> list[str]:
    """Return the recipe's files that don't exist here; addresses such as `hdfs://…` are left to verl."""
    files = [*recipe.tasks.train, *recipe.tasks.held_out]
    if recipe.cold_start is not None and not (cold_start_folder(recipe) / "done").exists():
        files += recipe.cold_start.demonstrations
    return [file for file in files if "://" not in file and not Path(file).exists()]


def check_data(recipe: Recipe) -> None:
    """Raise `RecipeError` if a file of the recipe doesn't exist here."""
    if missing := missing_data(recipe):
        raise RecipeError(
            f"these files don't exist: {', '.join(missing)}; docs/train.md says how to make them (Prepare the data)"
        )


def check_rows(recipe: Recipe) -> None:
    """Raise `RecipeError` if the tasks don't fill one batch: verl would never take a step."""
    import pyarrow.parquet as pq

    files = [Path(file) for file in recipe.tasks.train]
    if not all(file.is_file() and file.suffix == ".parquet" for file in files):
        return  # addresses and verl's other formats are left to verl
    rows = sum(pq.read_metadata(file).num_rows for file in files)
    if rows < recipe.batch.prompts:
        raise RecipeError(
            f"{', '.join(map(str, files))}: {rows} tasks, fewer than the batch.prompts={recipe.batch.prompts} of one "
            "step; lower it (and batch.mini_batch), or add tasks; in a stage, widen the bounds of its pass rates"
        )


def check_template(recipe: Recipe, folder: Path) -> ChatRenderer:
    """Return the model's chat renderer; raise `ChatError` if its template can't be used."""
    from transformers import AutoTokenizer

    from cleaner_rl.rollout import ChatRenderer

    tokenizer = AutoTokenizer.from_pretrained(recipe.model.path)
    prompt = load_prompt(recipe.prompt)
    chat = ChatRenderer(tokenizer, prompt.tools, in_template=prompt.in_template, options=recipe.model.template)
    tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))  # for the viewer
    return chat


def check_prompts(recipe: Recipe, tokens: Callable[[Sequence[Message]], int]) -> None:
    """Raise `RecipeError` if a prompt has more `tokens` than budget.prompt_tokens."""
    prompt, most, frame = load_prompt(recipe.prompt), recipe.budget.prompt_tokens, 0
    long: dict[str, int] = {}
    files = [Path(file) for file in (*recipe.tasks.train, *recipe.tasks.held_out)]
    ours = [file for file in files if file.is_file() and file.suffix == ".parquet"]  # as in `check_rows`
    for task in (task for file in ours for task in read_verl(file)):
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


def check_window(recipe: Recipe) -> None:
    """Raise `RecipeError` if a rollout may need more positions than the model has."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(recipe.model.path).get_text_config()
    positions = getattr(config, "max_position_embeddings", None)
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

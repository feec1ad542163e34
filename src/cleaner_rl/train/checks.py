"""What can be known to be wrong before anything starts. verl would say it minutes later, in words of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cleaner_rl.tasks import Message, load_prompt, read_verl
from cleaner_rl.train.cold_start import cold_start_folder
from cleaner_rl.train.folders import run_folder
from cleaner_rl.train.overrides import overrides
from cleaner_rl.train.recipe import Recipe, RecipeError
from cleaner_rl.train.resuming import check_folder
from cleaner_rl.train.stages import stage_recipe

if TYPE_CHECKING:
    from cleaner_rl.rollout import Chat


def check_settings(recipe: Recipe) -> None:
    """All that can be told without data, model or engine: what `--dry-run` checks too."""
    check_sizes(recipe)
    check_sandbox(recipe)
    check_folder(recipe)


def check_sandbox(recipe: Recipe) -> None:
    """Raise `RecipeError` if several machines would have to share a sandbox that serves one."""
    if recipe.device.nodes > 1 and not recipe.sandbox.addresses:
        raise RecipeError(
            f"device.nodes is {recipe.device.nodes}, but a sandbox started here serves this machine alone: start nodes "
            "(deploy/README.md) and give sandbox.addresses and sandbox.token_file"
        )


def check_sizes(recipe: Recipe) -> None:
    """Raise `RecipeError` if the devices can't share a mini-batch; verl would say so later, in words of its own."""
    ranks, batch = recipe.device.nodes * recipe.device.per_node, recipe.batch
    rows = batch.mini_batch * batch.rollouts
    if rows % (ranks * batch.micro_batch):
        raise RecipeError(
            f"a mini-batch has {rows} sequences, which {ranks} devices can't take {batch.micro_batch} at a time: "
            "batch.mini_batch x batch.rollouts must be a multiple of the devices times batch.micro_batch"
        )


def missing_data(recipe: Recipe) -> list[str]:
    """The recipe's files that aren't here. Addresses, such as `hdfs://…`, are verl's to look up."""
    files = [*recipe.tasks.train, *recipe.tasks.held_out]
    if recipe.cold_start is not None and not (cold_start_folder(recipe) / "done").exists():
        files += recipe.cold_start.demonstrations
    return [file for file in files if "://" not in file and not Path(file).exists()]


def check_data(recipe: Recipe) -> None:
    """Raise `RecipeError` if a file isn't here; verl would say so minutes later, from a process of its own."""
    if missing := missing_data(recipe):
        raise RecipeError(f"not here: {', '.join(missing)}; docs/train.md says how they are made (The data)")


def check_rows(recipe: Recipe) -> None:
    """Raise `RecipeError` if the tasks don't fill one batch: verl would never come to a step."""
    import pyarrow.parquet as pq

    files = [Path(file) for file in recipe.tasks.train]
    if not all(file.is_file() and file.suffix == ".parquet" for file in files):
        return  # addresses and verl's other formats are its own to count
    rows = sum(pq.read_metadata(file).num_rows for file in files)
    if rows < recipe.batch.prompts:
        raise RecipeError(
            f"{', '.join(map(str, files))}: {rows} tasks, fewer than the batch.prompts={recipe.batch.prompts} of one "
            "step; lower it (and batch.mini_batch), or give more tasks, in a stage by wider bounds of its pass rates"
        )


def check_template(recipe: Recipe, folder: Path) -> Chat:
    """The model's template as prompts are written by it; raises `ChatError` if it can't be used."""
    from transformers import AutoTokenizer

    from cleaner_rl.rollout import Chat

    tokenizer = AutoTokenizer.from_pretrained(recipe.model.path)
    prompt = load_prompt(recipe.prompt)
    chat = Chat(tokenizer, prompt.tools, in_template=prompt.in_template, options=recipe.model.template)
    tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))  # for the viewer
    return chat


def check_prompts(recipe: Recipe, tokens: Callable[[Sequence[Message]], int]) -> None:
    """Raise `RecipeError` if a prompt has more `tokens` than the recipe has room for: the response would have fewer."""
    prompt, most, frame = load_prompt(recipe.prompt), recipe.budget.prompt_tokens, 0
    long: dict[str, int] = {}
    files = [Path(file) for file in (*recipe.tasks.train, *recipe.tasks.held_out)]
    ours = [file for file in files if file.is_file() and file.suffix == ".parquet"]  # as in `check_rows`
    for task in (task for file in ours for task in read_verl(file)):
        messages = prompt.messages(task)
        frame = frame or tokens(messages)
        # A token has a byte at least: what is this short needn't be rendered, and of many thousand tasks most are.
        if frame + sum(len(each.content.encode()) for each in task.prompt) > most:
            count = tokens(messages)
            long |= {task.id: count} if count > most else {}
    if long:
        longest = max(long, key=long.__getitem__)
        raise RecipeError(
            f"{len(long)} tasks have prompts of more than budget.prompt_tokens={most} tokens, the longest, {longest}, "
            f"has {long[longest]}: raise it, or leave them out of the files"
        )


def check_window(recipe: Recipe) -> None:
    """Raise `RecipeError` if the model has fewer positions than a rollout may need."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(recipe.model.path).get_text_config()
    positions = getattr(config, "max_position_embeddings", None)
    for part in [stage_recipe(recipe, stage, "", []) for stage in recipe.stages] or [recipe]:
        settings = overrides(part, run_folder(recipe))
        window = settings["actor_rollout_ref.rollout.max_model_len"]
        stretched = settings.get("+actor_rollout_ref.model.override_config.max_position_embeddings", positions)
        if isinstance(stretched, int) and isinstance(window, int) and window > stretched:
            lookahead = f" + budget.lookahead_tokens={part.budget.lookahead_tokens}" if part.method.live else ""
            raise RecipeError(
                f"budget.prompt_tokens={part.budget.prompt_tokens} + budget.response_tokens="
                f"{part.budget.response_tokens}{lookahead} come to {window} tokens, but {recipe.model.path} has "
                f"positions for {stretched}: lower one of them"
            )

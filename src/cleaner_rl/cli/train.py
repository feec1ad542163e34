"""`cleaner train`: a recipe, run by verl."""

from __future__ import annotations

import json
from importlib.util import find_spec

import click

from cleaner_rl.train import Recipe, RecipeError, TrainingFailedError, as_arguments, parts, read_recipe


@click.command()
@click.argument("recipe", type=click.Path(exists=True, dir_okay=False))
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override a setting of the recipe.")
@click.option("--dry-run", is_flag=True, help="Print verl's settings and don't train; verl needn't be installed.")
@click.option("--json", "as_json", is_flag=True, help="With --dry-run: as JSON.")
def train(recipe: str, settings: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Train a model by a RECIPE file.

    \b
    Example:
      cleaner train recipes/hindsight-4b.yaml --dry-run
      cleaner train recipes/cleaner-4b.yaml --set method=dapo --set name=dapo

    What is in the run's folder already is gone on from: the same command resumes a run. A folder that holds a run of
    another recipe is refused.
    """
    try:
        read = read_recipe(recipe, settings)
        if dry_run:
            _show(read, as_json)
        else:
            _run(read)
    except (RecipeError, TrainingFailedError) as error:
        raise click.ClickException(str(error)) from None


def _show(recipe: Recipe, as_json: bool) -> None:
    from cleaner_rl.train.checks import check_settings, missing_data

    check_settings(recipe)
    found = parts(recipe)
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        for name, values in found.items():
            click.echo("\n".join([f"# {name}", *as_arguments(values)]))
    if missing := missing_data(recipe):
        click.echo(f"Not here yet, and needed to train: {', '.join(missing)} (docs/train.md, The data).", err=True)
    if find_spec("verl") is None:
        click.echo("verl isn't installed here: the settings weren't checked against it.", err=True)
        return
    from cleaner_rl.train.seams import broken_seams, check

    problems = broken_seams()
    for name, values in found.items():
        problems += check(as_arguments(values), "sft_trainer_engine" if name == "cold start" else "ppo_trainer")
    if problems:
        raise RecipeError("\n".join(problems))
    click.echo("The installed verl knows every one of these settings.", err=True)


def _run(recipe: Recipe) -> None:
    from cleaner_rl.cli.train_report import write_report
    from cleaner_rl.rollout import ChatError
    from cleaner_rl.train.folders import part_folders
    from cleaner_rl.train.start import train as run

    try:
        folder = run(recipe)
    except ChatError as error:
        raise RecipeError(f"the chat template of {recipe.model.path} can't be used: {error}") from None
    click.echo(write_report(folder, part_folders(recipe)) or "", nl=False)
    click.echo(f"Done: {folder}", err=True)

"""`cleaner train` runs a recipe by verl."""

from __future__ import annotations

import json
from pathlib import Path

import click

from cleaner_rl.train import RecipeError, TrainingFailedError, as_arguments, check, part_folders, read_recipe
from cleaner_rl.train import train as run


@click.command()
@click.argument("recipe", type=click.Path(exists=True, dir_okay=False))
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override a setting of the recipe.")
@click.option("--dry-run", is_flag=True, help="Print verl's settings without training; verl needn't be installed.")
@click.option(
    "--preflight", "try_first", is_flag=True, help="Run two steps and say whether the run can be started here."
)
@click.option("--json", "as_json", is_flag=True, help="With --dry-run or --preflight: print the result as JSON.")
def train(recipe: str, settings: tuple[str, ...], dry_run: bool, try_first: bool, as_json: bool) -> None:
    """Train a model by a RECIPE file.

    \b
    Example:
      cleaner train recipes/hindsight-4b.yaml --dry-run
      cleaner train recipes/saar-4b.yaml --preflight
      cleaner train recipes/saar-4b.yaml --set method=dapo --set name=dapo

    The same command resumes a run from its last checkpoint. A folder that holds a run of another recipe is refused.
    """
    try:
        if dry_run:
            _dry_run(recipe, settings, as_json)
        elif try_first:
            _preflight(recipe, settings, as_json)
        else:
            _train(recipe, settings)
    except (RecipeError, TrainingFailedError) as error:
        raise click.ClickException(str(error)) from None


def _dry_run(recipe: str, settings: tuple[str, ...], as_json: bool) -> None:
    found = check(recipe, settings)
    if as_json:
        click.echo(json.dumps(found.verl_settings, indent=2))
    else:
        for name, values in found.verl_settings.items():
            click.echo("\n".join([f"# {name}", *as_arguments(values)]))
    if found.missing_files:
        missing = ", ".join(found.missing_files)
        click.echo(
            f"Training needs these files, which are missing: {missing} (docs/train.md, Prepare the data).", err=True
        )
    if found.checked_by_verl:
        click.echo("The installed verl accepts all of these settings.", err=True)
    else:
        click.echo("verl isn't installed here, so the settings weren't checked against it.", err=True)


def _preflight(recipe: str, settings: tuple[str, ...], as_json: bool) -> None:
    from cleaner_rl.train.preflight import Verdict, preflight

    found = preflight(recipe, settings)
    page = Path(found.folder) / "preflight.html"
    if as_json:
        click.echo(page.with_suffix(".json").read_text(encoding="utf-8"), nl=False)
    else:
        for each in found.findings:
            click.echo(f"{each.name:14} {each.verdict:8} {each.words}")
            if each.change:
                click.echo(f"{'':23} {each.change}")
        click.echo(f"{found.verdict}: {page}", err=True)
    if found.verdict is Verdict.FAILED:
        raise SystemExit(1)


def _train(recipe: str, settings: tuple[str, ...]) -> None:
    from cleaner_rl.evaluate import train_report

    read = read_recipe(recipe, settings)
    folder = run(read)
    click.echo(train_report(folder, part_folders(read)) or "", nl=False)
    click.echo(f"Done: {folder}", err=True)

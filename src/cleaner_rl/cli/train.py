"""`cleaner train` runs a recipe by verl."""

from __future__ import annotations

import json
from pathlib import Path

import click

from cleaner_rl.cli.words import show
from cleaner_rl.train import (
    Recipe,
    RecipeError,
    TrainingFailedError,
    Verdict,
    as_arguments,
    check,
    part_folders,
    read_recipe,
    run_folder,
    run_preflight,
)
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
      cleaner train recipes/two-views-4b.yaml --dry-run
      cleaner train recipes/saar-4b.yaml --preflight
      cleaner train recipes/saar-4b.yaml --set method=dapo --set name=dapo

    One line per step says how the run is doing; verl's own output goes to a file in the run's folder. The same command
    resumes a run from its last checkpoint. A folder that holds a run of another recipe is refused.
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
        show(json.dumps(found.verl_settings, indent=2))
    else:
        for name, values in found.verl_settings.items():
            show("\n".join([f"# {name}", *as_arguments(values)]))
    if found.missing_files:
        missing = ", ".join(found.missing_files)
        show(f"Training needs these files, which are missing: {missing} (docs/train.md, Prepare the data).", err=True)
    if found.checked_by_verl:
        show("The installed verl accepts all of these settings.", err=True)
    else:
        show("verl isn't installed here, so the settings weren't checked against it.", err=True)


def _preflight(recipe: str, settings: tuple[str, ...], as_json: bool) -> None:
    found = run_preflight(recipe, settings, tell=lambda line: show(line, err=True))
    page = Path(found.folder) / "preflight.html"
    if as_json:
        show(page.with_suffix(".json").read_text(encoding="utf-8"), nl=False)
    else:
        for each in found.findings:
            show(f"{each.name:14} {each.verdict:8} {each.words}")
            if each.change:
                show(f"{'':23} {each.change}")
        show(f"{found.verdict}: {page}", err=True)
    if found.verdict is Verdict.FAILED:
        raise SystemExit(1)


def _train(recipe: str, settings: tuple[str, ...]) -> None:
    read = read_recipe(recipe, settings)
    folder = run_folder(read)

    def evaluated() -> str | None:
        _report(read)
        last = json.loads((folder / "report.json").read_text(encoding="utf-8"))["held_out"][-1]
        failed = f"{last['errors_per_trajectory']:.2f} failed calls per rollout"
        return (
            f"Evaluation after step {last['step']}, repair off: accuracy {last['value']:.1%} on {last['problems']} "
            f"tasks, {failed} ({folder / 'report.md'})."
        )

    run(read, tell=lambda line: show(line, err=True), evaluated=evaluated)
    show(_report(read) or "", nl=False)
    show(f"Done: {folder}", err=True)


def _report(recipe: Recipe) -> str | None:
    from cleaner_rl.evaluate import train_report  # loads NumPy's statistics, which a refusal needn't wait for

    return train_report(run_folder(recipe), part_folders(recipe))

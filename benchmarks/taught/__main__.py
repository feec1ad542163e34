"""`python -m benchmarks.taught make mistakes`: make a world and its pupil, or find it made. Prints its folder."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import click

from benchmarks.taught.folder import made
from benchmarks.taught.pupil import Lessons
from benchmarks.taught.regimes import REGIMES


@click.group()
def main() -> None:
    """A tiny model that makes and mends mistakes. Needs torch and transformers."""


@main.command()
@click.argument("regime", type=click.Choice(sorted(REGIMES)))
@click.option("--cache", type=click.Path(path_type=Path), help="Where made folders are kept.")
@click.option("--set", "settings", multiple=True, metavar="NAME=NUMBER", help="Of the lessons, e.g. epochs=4.")
def make(regime: str, cache: Path | None, settings: tuple[str, ...]) -> None:
    """Make a world and teach its pupil, e.g. `make drift --set seed=1`. Prints the folder."""
    lessons = Lessons()
    kinds = {each.name: type(getattr(lessons, each.name)) for each in fields(lessons)}
    for setting in settings:
        name, _, value = setting.partition("=")
        if name not in kinds:
            raise click.UsageError(f"the lessons have no setting '{name}'; they have {', '.join(kinds)}")
        lessons = replace(lessons, **{name: kinds[name](value)})
    click.echo(made(REGIMES[regime], lessons, cache))


main()

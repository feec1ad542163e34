"""`python -m benchmarks.taught make mistakes`: make a world and its pupil, or find it made. Prints its folder.

`python -m benchmarks.taught serve FOLDER`: a sandbox node that offers its library, for `cleaner rollout --sandbox`.
"""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import click

from benchmarks.taught import library
from benchmarks.taught.folder import made
from benchmarks.taught.pupil import SMALL, Lessons
from benchmarks.taught.regimes import REGIMES
from benchmarks.taught.workshop import LIMITS
from cleaner_rl.sandbox import NodeConfig, SessionRequest
from cleaner_rl.sandbox.service import Keeper, ServiceConfig, bind


@click.group()
def main() -> None:
    """A tiny model that makes and mends mistakes. Needs torch and transformers."""


@main.command()
@click.argument("regime", type=click.Choice(sorted(REGIMES)))
@click.option("--cache", type=click.Path(path_type=Path), help="Where made folders are kept.")
@click.option("--small", is_flag=True, help="A smaller pupil, for training on: that of the lab.")
@click.option("--set", "settings", multiple=True, metavar="NAME=NUMBER", help="Of the lessons, e.g. epochs=4.")
def make(regime: str, cache: Path | None, small: bool, settings: tuple[str, ...]) -> None:
    """Make a world and teach its pupil, e.g. `make drift --set seed=1`. Prints the folder."""
    lessons = SMALL if small else Lessons()
    kinds = {each.name: type(getattr(lessons, each.name)) for each in fields(lessons)}
    for setting in settings:
        name, _, value = setting.partition("=")
        if name not in kinds:
            raise click.UsageError(f"the lessons have no setting '{name}'; they have {', '.join(kinds)}")
        lessons = replace(lessons, **{name: kinds[name](float(value))})
    click.echo(made(REGIMES[regime], lessons, cache))


@main.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--port", default=8089, show_default=True)
@click.option("--slots", default=2, show_default=True, help="Runs at the same time.")
def serve(folder: Path, port: int, slots: int) -> None:
    """Serve the library of a made folder as a sandbox node; the set has the name that sessions ask for by default."""
    preload = library.preload(folder / "site", SessionRequest().preload)
    config = ServiceConfig(NodeConfig(slots=slots, preload=(preload,), limits=LIMITS))
    raise SystemExit(Keeper(bind("127.0.0.1", port, config), config).run())


main()

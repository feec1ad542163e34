"""`python -m benchmarks.toy make mistakes` makes a toy environment and its model once, and prints their folder.

`python -m benchmarks.toy serve FOLDER` starts a sandbox node that offers its library, for `cleaner rollout --sandbox`.
"""

from __future__ import annotations

import shutil
from dataclasses import fields, replace
from pathlib import Path

import click

from benchmarks.toy import library
from benchmarks.toy.folder import cache_folder, made
from benchmarks.toy.model import SMALL, Lessons
from benchmarks.toy.regimes import REGIMES
from benchmarks.toy.sandboxes import LIMITS
from cleaner_sandbox import NodeConfig, find_environments
from cleaner_sandbox import serve as serve_node

SMALLEST = "smallest"


@click.group()
def main() -> None:
    """Make a toy model that makes mistakes and corrects them. Needs torch and transformers."""


@main.command()
@click.argument("regime", type=click.Choice([*sorted(REGIMES), SMALLEST]))
@click.option("--cache", type=click.Path(path_type=Path), help="The folder that holds the made ones.")
@click.option("--small", is_flag=True, help="A smaller model for RL, as the lab uses it.")
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=NUMBER", help="A setting of the training, e.g. epochs=4."
)
def make(regime: str, cache: Path | None, small: bool, settings: tuple[str, ...]) -> None:
    """Make a toy environment and train its model, e.g. `make drift --set seed=1`. Prints the folder.

    `make smallest` takes a minute: an environment to try a recipe in, with tasks to train on and no others.
    """
    if regime == SMALLEST:
        if small or settings:
            raise click.UsageError("`smallest` has no settings; take another environment")
        click.echo(smallest(cache))
        return
    lessons = SMALL if small else Lessons()
    kinds = {each.name: type(getattr(lessons, each.name)) for each in fields(lessons)}
    for setting in settings:
        name, _, value = setting.partition("=")
        if name not in kinds:
            raise click.UsageError(f"there is no setting '{name}'; the settings are {', '.join(kinds)}")
        lessons = replace(lessons, **{name: kinds[name](float(value))})
    click.echo(made(REGIMES[regime], lessons, cache))


def smallest(cache: Path | None) -> Path:
    """Return the folder of the smallest toy environment; make it if it doesn't exist."""
    from benchmarks.toy.smallest import make as make_smallest  # the command of this name is another

    folder = (cache or cache_folder()) / SMALLEST
    if not (folder / "model").exists():
        shutil.rmtree(folder, ignore_errors=True)  # what an interrupted one left
        make_smallest(folder)
    return folder


@main.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--port", default=8089, show_default=True)
@click.option("--slots", default=2, show_default=True, help="Runs at the same time.")
def serve(folder: Path, port: int, slots: int) -> None:
    """Serve the library of a made folder as a sandbox node, which has no other environment."""
    environments = find_environments([str(folder.absolute() / library.MODULE)])
    raise SystemExit(serve_node(NodeConfig(slots=slots, environments=environments, limits=LIMITS), port=port))


main()

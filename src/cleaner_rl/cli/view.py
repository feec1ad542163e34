"""`cleaner view`: see trajectories, edits and runs in a browser."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path
from urllib.parse import parse_qsl

import click

from cleaner_rl.cli.options import PORT
from cleaner_rl.cli.words import said, show
from cleaner_rl.trajectory.store import StoreError
from cleaner_rl.view import DEMO, LARGEST_PAGE, BadQueryError, NothingToShowError, serve
from cleaner_rl.view import export as write_page


@click.command()
@click.argument("path", type=click.Path(path_type=Path), required=False)
@click.option("--port", type=PORT, default=0, show_default="a free one", help="Port on 127.0.0.1.")
@click.option("--open/--no-open", "opens", default=True, show_default=True, help="Open it in the browser.")
@click.option(
    "--export",
    "export",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write one HTML file instead of serving; it opens on the first repair.",
)
@click.option(
    "--query",
    default="",
    metavar="QUERY",
    help="What to export, as in a list's address: 'edits=any&sort=-reward&size=20'.",
)
@click.option("--demo", is_flag=True, help="Show the sample that ships with the package.")
def view(path: Path | None, port: int, opens: bool, export: Path | None, query: str, demo: bool) -> None:
    """See a store, a run's folder, or results of an evaluation.

    \b
    Examples:
      cleaner view runs/saar
      cleaner view runs/saar --export edits.html --query 'edits=any&size=50'
      cleaner view --demo

    The server answers to this machine alone, changes nothing and asks no other. The first look at a large store reads
    all of it once, to index it; pages can be seen meanwhile.
    """
    if demo == (path is not None):
        raise click.UsageError("give a path, or --demo for the sample")
    if query and export is None:
        raise click.UsageError("--query chooses what is exported: give --export FILE too, or filter in the page's list")
    shown = DEMO if path is None else path
    try:
        if export is None:
            serve(shown, port, ready=lambda address, shared: _ready(address, shared, opens), progress=_progress)
        else:
            _export(shown, export, dict(parse_qsl(query)))
    except ImportError as error:
        raise click.ClickException(f"{error.name} is missing: pip install 'cleaner-rl[view]'") from None
    except (NothingToShowError, BadQueryError, StoreError) as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(said(error)) from None


def _export(path: Path, out: Path, query: dict[str, str]) -> None:
    made = write_page(path, out, query, progress=_progress)
    for name, problem in made.left_out.items():
        show(f"left out: {name}: {problem}", err=True)
    show(f"{out}: {made.size:,} bytes, {made.shown:,} of {made.total:,} trajectories")
    if made.shown < made.total:
        show(f"for others, --query takes size= (up to {LARGEST_PAGE}) and page= (from 0)", err=True)


def _ready(address: str, shared: bool, opens: bool) -> None:
    show(f"{address}  (Ctrl-C ends it)")
    if not shared:
        show("another viewer has this store's index; this one makes its own, in memory", err=True)
    if opens:
        webbrowser.open(address)


def _progress(done: int, total: int) -> None:
    """One line on a terminal, which is written over."""
    if sys.stderr.isatty():
        click.echo(f"\rindex {100 * done // max(1, total)} %", nl=done == total, err=True)

"""`cleaner view`: see trajectories, edits and runs in a browser."""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

import click

from cleaner_rl.cli.options import PORT
from cleaner_rl.cli.words import said
from cleaner_rl.view import DEMO

if TYPE_CHECKING:
    from cleaner_rl.view.library import Library
    from cleaner_rl.view.sources import StoreFile


@click.command()
@click.argument("path", type=click.Path(path_type=Path), required=False)
@click.option("--port", type=PORT, default=0, show_default="a free one", help="Port on 127.0.0.1.")
@click.option("--open/--no-open", "opens", default=True, show_default=True, help="Open it in the browser.")
@click.option(
    "--export",
    "export",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write one HTML file instead of serving.",
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
    try:
        from cleaner_rl.view.export import page_of
        from cleaner_rl.view.library import Library
        from cleaner_rl.view.query import LARGEST_PAGE, BadQueryError, parse
        from cleaner_rl.view.server import bind, serve
        from cleaner_rl.view.sources import NothingToShowError
    except ImportError as error:
        raise click.ClickException(f"{error.name} is missing: pip install 'cleaner-rl[view]'") from None
    parameters = dict(parse_qsl(query))
    try:
        parse(parameters)
        with Library(DEMO if path is None else path) as library:
            if export is not None:
                with _bar(library) as done:
                    library.update(done)
                problems = library.overview()["problems"]
                for each in problems:
                    click.echo(f"left out: {each['name']}: {each['problem']}", err=True)
                if len(problems) == len(library.sources.files) > 0:
                    raise click.ClickException("nothing could be read, so no page was written")
                made = page_of(library, parameters)
                export.write_bytes(made.page)
                click.echo(f"{export}: {len(made.page):,} bytes, {made.shown:,} of {made.total:,} trajectories")
                if made.shown < made.total:
                    click.echo(f"for others, --query takes size= (up to {LARGEST_PAGE}) and page= (from 0)", err=True)
                return
            listening = bind(port)
            address = f"http://127.0.0.1:{listening.getsockname()[1]}/"
            click.echo(f"{address}  (Ctrl-C ends it)")
            if not library.index.shared:
                click.echo("another viewer has this store's index; this one makes its own, in memory", err=True)
            if opens:
                webbrowser.open(address)
            with _bar(library) as done:
                serve(library, listening, done)
    except (NothingToShowError, BadQueryError) as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(said(error)) from None


@contextmanager
def _bar(library: Library) -> Iterator[Callable[[StoreFile], None]]:
    """A bar on a terminal, of the bytes that aren't in the index yet."""
    size = sum(file.size for file in library.index.stale(library.sources))
    hidden = not sys.stderr.isatty() or not size
    with click.progressbar(length=size, label="index", file=sys.stderr, hidden=hidden) as bar:
        yield lambda file: bar.update(file.size)

"""`cleaner review`: judge a sample of what was decided, and get the rates of errors on your own logs."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path

import click

from cleaner_rl.cli import options as shared
from cleaner_rl.cli.options import PORT
from cleaner_rl.cli.words import said, show
from cleaner_rl.trajectory.store import StoreError, read
from cleaner_rl.view import REVIEW_SIZE, Review, sample, serve_review


@click.command()
@click.argument("store", type=click.Path(exists=True, path_type=Path))
@click.option("--size", type=shared.COUNT, default=REVIEW_SIZE, show_default=True, help="Decisions in the sample.")
@click.option(
    "--reviews",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File of the answers. Default: reviews.jsonl beside the store.",
)
@click.option("--port", type=PORT, default=0, show_default="a free one", help="Port on 127.0.0.1.")
@click.option("--open/--no-open", "opens", default=True, show_default=True, help="Open it in the browser.")
@click.option("--rates", is_flag=True, help="Only show the rates of errors of the answers that are there.")
@shared.as_json
def review(store: Path, size: int, reviews: Path | None, port: int, opens: bool, rates: bool, as_json: bool) -> None:
    """Judge a sample of verdicts, edits and failures left alone, by a key each, and get your own error rates.

    STORE is the folder that `cleaner purify` wrote to, or the store in it. The same command goes on where you stopped.

    \b
    Examples:
      cleaner review clean
      cleaner review clean --rates --json
      cleaner purify logs/ --out reviewed --sft jsonl --reviews clean/reviews.jsonl
    """
    folder = store / "store" if (store / "store").is_dir() else store
    path = reviews or folder.parent / "reviews.jsonl"
    try:
        made = Review(sample(read(folder), size), path)
        if not made.items:
            raise click.ClickException(f"{folder} has no call to judge")
        if not rates:
            serve_review(made, port, ready=lambda address: _ready(address, path, opens))
    except ImportError as error:
        raise click.ClickException(f"{error.name} is missing: pip install 'cleaner-rl[view]'") from None
    except StoreError as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(said(error)) from None
    show(json.dumps(made.rates()) if as_json else _told(made, path))


def _ready(address: str, path: Path, opens: bool) -> None:
    show(f"{address}  (Ctrl-C ends it; answers are kept in {path})", err=True)
    if opens:
        webbrowser.open(address)


def _told(made: Review, path: Path) -> str:
    lines = []
    for what, each in made.rates().items():
        low, high = each.get("interval", (0, 100))
        share = f"{each['wrong']} wrong, {each['percent']} % ({low} to {high})" if each["judged"] else "none judged"
        unknown = f"; {each['cant_tell']} can't tell" if each["cant_tell"] else ""
        lines.append(f"{what:14} {each['judged']:>3} of {each['sample']:>3} judged: {share}{unknown}")
    lines.append(f"rows without what is wrong: cleaner purify LOGS --out NEW --sft jsonl --reviews {path}")
    return "\n".join(lines)

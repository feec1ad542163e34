"""`cleaner compare`: two evaluations, problem by problem."""

from __future__ import annotations

import json
from pathlib import Path

import click

from cleaner_rl.cli.options import as_json
from cleaner_rl.cli.words import said, show
from cleaner_rl.evaluate import ResultsError, comparison_text, read_results, write_comparison
from cleaner_rl.evaluate import compare as compare_results

RESULTS = click.Path(exists=True, path_type=Path)


@click.command()
@click.argument("before", type=RESULTS)
@click.argument("after", type=RESULTS)
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="Also write JSON, Markdown and HTML here."
)
@as_json
def compare(before: Path, after: Path, out: Path | None, as_json: bool) -> None:
    """What changed from one evaluation to another, over the problems that both have.

    Give the folders that `cleaner eval` wrote. Differences are AFTER minus BEFORE, with repair off first.

    \b
    Example:
      cleaner compare evals/step-0 evals/step-200 --out evals/0-to-200
    """
    try:
        found = compare_results(read_results(before), read_results(after))
    except ResultsError as error:
        raise click.ClickException(str(error)) from None
    if out is not None:
        try:
            write_comparison(found, out)
        except (ImportError, OSError) as error:
            raise click.ClickException(said(error)) from None
    show(json.dumps(found.to_json()) if as_json else comparison_text(found), nl=as_json)

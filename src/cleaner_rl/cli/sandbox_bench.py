"""`cleaner sandbox bench`: what does a call cost?"""

from __future__ import annotations

import json
import sys

import click

from cleaner_rl.cli.options import COUNT
from cleaner_rl.sandbox.bench import PROGRAMS
from cleaner_rl.sandbox.bench import bench as measure


@click.command()
@click.option("--rounds", type=COUNT, default=5, show_default=True, help="Each figure is the median over so many.")
@click.option("--json", "as_json", is_flag=True, help="Print one object.")
def bench(rounds: int, as_json: bool) -> None:
    """Measure the CPU time of a call over HTTP, beside a bare fork and a bare isolated fork.

    Needs root, for the isolated fork. The machine should have nothing else to do.

    \b
    Example:
      cleaner sandbox bench --rounds 3 --json
    """
    shown = sys.stderr.isatty()
    with click.progressbar(length=rounds * len(PROGRAMS), label="rounds", file=sys.stderr, hidden=not shown) as bar:
        try:
            figures = measure(rounds, lambda: bar.update(1))
        except (RuntimeError, OSError) as error:
            raise click.ClickException(str(error)) from None
    if as_json:
        click.echo(json.dumps(figures))
        return
    click.echo(f"{'CPU ms per call':16}{'service':>10}{'isolated':>10}{'fork':>10}{'ratio':>10}{'p50 ms':>10}")
    for name in PROGRAMS:
        row = figures[name]
        columns = (row["service_ms"], row["isolated_fork_ms"], row["fork_ms"], row["ratio"], row["p50_ms"])
        click.echo(f"{name:16}" + "".join(f"{value:>10.2f}" for value in columns))

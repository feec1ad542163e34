"""`python -m benchmarks.sandbox_bench`: what does a call cost?"""

from __future__ import annotations

import json
import sys

import click

from benchmarks.sandbox_bench.measure import bench as measured
from cleaner_sandbox.cli.options import COUNT, as_json
from cleaner_sandbox.cli.words import show


@click.command()
@click.option(
    "--rounds", type=COUNT, default=5, show_default=True, help="Number of repetitions; each figure is their median."
)
@as_json
def bench(rounds: int, as_json: bool) -> None:
    """Measure the CPU time of a call over HTTP, beside a bare fork and a bare isolated fork.

    Needs root, for the isolated fork. The machine should have nothing else to do.

    \b
    Example:
      python -m benchmarks.sandbox_bench --rounds 3 --json
    """
    with click.progressbar(length=1, label="rounds", file=sys.stderr, hidden=not sys.stderr.isatty()) as bar:

        def done(rounds_done: int, of: int) -> None:
            bar.length = of
            bar.update(rounds_done - bar.pos)

        try:
            figures = measured(rounds, done)
        except (ImportError, OSError, RuntimeError) as error:
            raise click.ClickException(str(error)) from None
    if as_json:
        show(json.dumps(figures))
        return
    show(f"{'CPU ms per call':16}{'service':>10}{'isolated':>10}{'fork':>10}{'ratio':>10}{'p50 ms':>10}")
    for name, row in figures.items():
        if name not in ("p50_ms", "cpu", "mitigations"):
            columns = (row["service_ms"], row["isolated_fork_ms"], row["fork_ms"], row["ratio"], row["p50_ms"])
            show(f"{name:16}" + "".join(f"{value:>10.2f}" for value in columns))
    show(f"CPU: {figures['cpu']}")
    mitigations = "; ".join(f"{name}: {what}" for name, what in figures["mitigations"].items())
    show(f"mitigations: {mitigations or 'none'}")


if __name__ == "__main__":
    bench()

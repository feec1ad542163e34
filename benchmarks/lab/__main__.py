"""`python -m benchmarks.lab run`: run the lab, or go on with it. `room` evaluates its models with more turns, `status`
says how far it is, `page` writes it down."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path

import click

from benchmarks.lab.arms import ARMS
from benchmarks.lab.order import order
from benchmarks.lab.page import DOCS, PAGES, write_pages
from benchmarks.lab.recipes import EVALUATE_EVERY, Run
from benchmarks.lab.results import RESULTS, read_all
from benchmarks.lab.room import measure
from benchmarks.lab.running import Lab
from benchmarks.lab.worlds import PLACES

results_option = click.option(
    "--results", type=click.Path(path_type=Path), default=RESULTS, help="Where results are kept.", show_default="here"
)


@click.group()
def main() -> None:
    """Does training on clean trajectories do what it is for? Needs the engine environment (docs/train.md)."""


@main.command()
@click.option("--minutes", type=float, default=float("inf"), help="Stop in time, and go on by the same command.")
@click.option("--jobs", type=int, default=1, show_default=True, help="Runs at a time.")
@click.option("--regime", "regimes", multiple=True, type=click.Choice(PLACES), help="Only these.")
@click.option("--arm", "arms", multiple=True, type=click.Choice(list(ARMS)), help="Only these.")
@click.option("--seed", "seeds", multiple=True, type=int, help="Only these.")
@click.option("--steps", type=int, default=0, help="Fewer steps, for a trial; keep its results elsewhere.")
@results_option
def run(
    minutes: float,
    jobs: int,
    regimes: tuple[str, ...],
    arms: tuple[str, ...],
    seeds: tuple[int, ...],
    steps: int,
    results: Path,
) -> None:
    """Run all that isn't finished, in order: tuning, the required arms in drift, slips, starved, controls.

    \b
    Examples:
      python -m benchmarks.lab run --minutes 120
      python -m benchmarks.lab run --regime drift --arm saar --seed 0 --steps 3 --results trial
    """
    if steps and results == RESULTS:
        raise click.UsageError("--steps is for trials: give --results a folder of its own")
    chosen = _chosen(regimes, arms, seeds)
    lab = Lab(steps=steps, results=results, until=time.monotonic() + 60 * minutes, say=_say)
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, lambda *_: lab.stop.set())
    lab.work(chosen, jobs)
    _say(_progress(chosen, results))
    if lab.failed:
        sys.exit(f"failed: {', '.join(run.name for run in lab.failed)}")


@main.command()
@click.option("--minutes", type=float, default=float("inf"), help="Stop in time, and go on by the same command.")
@click.option("--regime", "regimes", multiple=True, type=click.Choice(PLACES), help="Only these.")
@click.option("--arm", "arms", multiple=True, type=click.Choice(list(ARMS)), help="Only these.")
@click.option("--seed", "seeds", multiple=True, type=int, help="Only these.")
@click.option("--every", type=int, default=EVALUATE_EVERY, show_default=True, help="Steps between two models.")
@results_option
def room(
    minutes: float, regimes: tuple[str, ...], arms: tuple[str, ...], seeds: tuple[int, ...], every: int, results: Path
) -> None:
    """Evaluate the models that runs have saved with more turns than they were trained with.

    \b
    Example:
      python -m benchmarks.lab room --regime drift --arm dapo --arm hindsight-successes
    """
    until = time.monotonic() + 60 * minutes
    measure(_chosen(regimes, arms, seeds), results, every, lambda: time.monotonic() > until, _say)


@main.command()
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@results_option
def status(as_json: bool, results: Path) -> None:
    """What has run, and what hasn't."""
    found = {each.run: each for each in read_all(results)}
    rows = [
        {"run": run.name, "steps": max(found[run].training, default=0) if run in found else 0, "of": run.steps}
        for run in order()
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        click.echo(f"{row['run']:<32} {row['steps']:>3} of {row['of']}")
    click.echo(_progress(order(), results))


@main.command()
@results_option
def page(results: Path) -> None:
    """Write figures, tables and plots into the documentation, between the marks there."""
    write_pages(PAGES, read_all(results), DOCS / "images")
    click.echo("\n".join(map(str, PAGES)))


def _chosen(regimes: tuple[str, ...], arms: tuple[str, ...], seeds: tuple[int, ...]) -> list[Run]:
    chosen = [
        run
        for run in order()
        if (not regimes or run.regime in regimes) and (not arms or run.arm in arms) and (not seeds or run.seed in seeds)
    ]
    if not chosen:
        raise click.UsageError("the lab has no such run; `status` lists all")
    return chosen


def _progress(runs: list[Run], results: Path) -> str:
    finished = {each.run for each in read_all(results) if each.finished}
    return f"{len(finished.intersection(runs))} of {len(runs)} runs are finished"


def _say(words: str) -> None:
    click.echo(f"{time.strftime('%H:%M:%S')} {words}", err=True)


main()

"""`python -m benchmarks.lab run` runs or resumes the lab on verl, `run-worlds` in one process.

`larger-budget` evaluates verl's models with more turns, `status` lists what has run, `page` writes the documentation,
`margins` judges two views and rescue by the plan.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path

import click

from benchmarks.lab.environments import REAL, REGIME_NAMES
from benchmarks.lab.larger_budget import measure
from benchmarks.lab.local.margins import margins, read_plan
from benchmarks.lab.local.methods import AT_EQUAL_COMPUTE
from benchmarks.lab.local.methods import METHODS as LOCAL
from benchmarks.lab.local.page import PAGES as WORLD_PAGES
from benchmarks.lab.local.page import Lines
from benchmarks.lab.local.page import write_pages as write_world_pages
from benchmarks.lab.local.preregistered import judged, read_second_plan
from benchmarks.lab.local.queue import EQUAL, ON_VERL, SECOND, Queue
from benchmarks.lab.local.queue import RESULTS as WORLDS
from benchmarks.lab.local.queue import read as read_lines
from benchmarks.lab.local.runs import WorldRun
from benchmarks.lab.local.worlds import (
    COLD_STARTS,
    DEVELOPMENT,
    ENVIRONMENTS,
    EQUAL_COMPUTE,
    FRESH,
    FRESH_REAL,
    PREREGISTERED,
    World,
    keep,
)
from benchmarks.lab.methods import METHODS
from benchmarks.lab.order import order
from benchmarks.lab.page import DOCS, PAGES, write_pages
from benchmarks.lab.recipes import EVALUATE_EVERY, Run
from benchmarks.lab.results import RESULTS, read_all
from benchmarks.lab.running import Lab

results_option = click.option(
    "--results", type=click.Path(path_type=Path), default=RESULTS, help="The folder of results.", show_default="here"
)
minutes_option = click.option(
    "--minutes", type=float, default=float("inf"), help="Stop after so long; the same command resumes."
)
regime_option = click.option(
    "--regime", "regimes", multiple=True, type=click.Choice(REGIME_NAMES), help="Only this environment (repeatable)."
)
method_option = click.option(
    "--method", "methods", multiple=True, type=click.Choice(list(METHODS)), help="Only this method (repeatable)."
)
seed_option = click.option("--seed", "seeds", multiple=True, type=int, help="Only this seed (repeatable).")


@click.group()
def main() -> None:
    """Compare training methods on a toy model. Needs the engine environment (docs/train.md)."""


@main.command()
@minutes_option
@click.option("--jobs", type=int, default=1, show_default=True, help="Number of runs at a time.")
@regime_option
@method_option
@seed_option
@click.option("--steps", type=int, default=0, help="Fewer steps, for a trial; keep its results in another folder.")
@results_option
def run(
    minutes: float,
    jobs: int,
    regimes: tuple[str, ...],
    methods: tuple[str, ...],
    seeds: tuple[int, ...],
    steps: int,
    results: Path,
) -> None:
    """Run all that isn't finished, in order: tuning, the compared methods in drift, slips, starved, ablations.

    \b
    Examples:
      python -m benchmarks.lab run --minutes 120
      python -m benchmarks.lab run --regime drift --method saar --seed 0 --steps 3 --results trial
    """
    if steps and results == RESULTS:
        raise click.UsageError("--steps is for trials: give --results another folder")
    chosen = _chosen(regimes, methods, seeds)
    lab = Lab(steps=steps, results=results, until=time.monotonic() + 60 * minutes, say=_say)
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, lambda *_: lab.stop.set())
    lab.work(chosen, jobs)
    _say(_progress(chosen, results))
    if lab.failed:
        sys.exit(f"failed: {', '.join(run.name for run in lab.failed)}")


@main.command()
@click.option(
    "--stage",
    type=click.Choice(["development", "equal", "fresh", "preregistered"]),
    default="development",
    show_default=True,
    help="Development worlds are for choosing, `equal` is what is compared there at equal compute; the others are "
    "run once, as the first or the second plan says.",
)
@click.option(
    "--backend",
    type=click.Choice(["local", "verl"]),
    default="local",
    show_default=True,
    help="One process, or verl; verl needs the engine environment and minutes for each run.",
)
@minutes_option
@click.option("--jobs", type=int, default=1, show_default=True, help="Number of runs at a time.")
@click.option(
    "--regime",
    "regimes",
    multiple=True,
    type=click.Choice([*ENVIRONMENTS, REAL]),
    help="Only this environment (repeatable); all but smollm2 by default.",
)
@click.option(
    "--method", "methods", multiple=True, type=click.Choice(list(LOCAL)), help="Only this method (repeatable)."
)
@click.option("--world", "worlds", multiple=True, type=int, help="Only this world (repeatable).")
@click.option("--rate", "rates", multiple=True, type=float, help="Learning rates in place of the plan's (repeatable).")
@click.option(
    "--seed",
    "seeds",
    multiple=True,
    type=int,
    help="Another seed of rollouts than the world's number (repeatable); keep its results in another folder.",
)
@click.option("--steps", type=int, default=0, help="Another number of steps; keep its results in another folder.")
@click.option(
    "--results", type=click.Path(path_type=Path), help="The folder of results.", show_default="here, by backend"
)
def run_worlds(
    stage: str,
    backend: str,
    minutes: float,
    jobs: int,
    regimes: tuple[str, ...],
    methods: tuple[str, ...],
    worlds: tuple[int, ...],
    rates: tuple[float, ...],
    seeds: tuple[int, ...],
    steps: int,
    results: Path | None,
) -> None:
    """Run all that isn't finished, each run in one process: seconds per step, where verl takes minutes to start.

    \b
    Examples:
      python -m benchmarks.lab run-worlds --jobs 2 --minutes 120
      python -m benchmarks.lab run-worlds --stage fresh --jobs 2
      python -m benchmarks.lab run-worlds --stage equal --minutes 120
      python -m benchmarks.lab run-worlds --stage preregistered --minutes 600
      python -m benchmarks.lab run-worlds --stage fresh --backend verl --regime drift --world 101 --method grpo
      python -m benchmarks.lab run-worlds --regime drift --world 1 --method grpo --steps 3 --results trial
    """
    on_verl, trial = backend == "verl", results not in (None, WORLDS, ON_VERL)
    if (steps or seeds) and not trial:
        raise click.UsageError("with --steps or --seed, give --results another folder")
    plan, second = read_plan(), read_second_plan()
    of_stage = {"development": DEVELOPMENT, "equal": EQUAL_COMPUTE, "fresh": FRESH, "preregistered": PREREGISTERED}[
        stage
    ]
    numbers = worlds or of_stage
    if stage == "equal":
        methods, regimes = methods or AT_EQUAL_COMPUTE, regimes or ENVIRONMENTS[:-1]
    elif stage != "development" and (rates or set(numbers) - set(of_stage)):
        raise click.UsageError(f"{stage} worlds are run as the plan says: without --rate, and with their own numbers")
    if stage == "fresh" and not plan.comparators:
        raise click.UsageError("the plan names no comparators yet: fresh worlds wait until plan.json has them")
    if stage == "development" and set(numbers) & set(FRESH) and not trial:
        raise click.UsageError(f"worlds {FRESH[0]} to {FRESH[-1]} are fresh: run them with --stage fresh")
    if stage != "preregistered" and set(numbers) & set(PREREGISTERED):
        raise click.UsageError(
            f"worlds {PREREGISTERED[0]} to {PREREGISTERED[-1]} are the second plan's: give its stage"
        )
    if stage == "preregistered":
        regimes = regimes or tuple(second.rivals)
        refused = [*(set(regimes) - set(second.rivals)), *(("--steps",) if steps else ())]
        refused += [each for each in methods for regime in regimes if each not in second.methods(regime)]
        if refused or seeds or on_verl:
            raise click.UsageError("the second plan runs as it is: its environments, methods, steps and seeds, locally")
    runs = [
        WorldRun(World(regime, number), method, rate, seed)
        for number in numbers
        for regime in regimes or ENVIRONMENTS
        if worlds or regime != REAL or number in FRESH_REAL
        for method in methods
        or (second.methods(regime) if stage == "preregistered" else plan.methods_in(World(regime, number)))
        for rate in rates or (second.rate if stage == "preregistered" else plan.rate(regime, method),)
        for seed in seeds or (None,)
    ]
    if stage == "equal":
        runs.sort(key=lambda run: AT_EQUAL_COMPUTE.index(run.method) // 4 if run.method in AT_EQUAL_COMPUTE else 0)
    if stage == "fresh":  # what the margins need comes first
        runs.sort(key=lambda run: run.method not in plan.needed(run.world.environment))
    kept = results or {"preregistered": SECOND, "equal": EQUAL}.get(stage, ON_VERL if on_verl else WORLDS)
    queue = Queue(kept, steps, time.monotonic() + 60 * minutes, _say, on_verl)
    queue.work(runs, jobs)
    if queue.failed:
        sys.exit(f"failed: {', '.join(queue.failed)}")


@main.command()
def keep_starts() -> None:
    """Make the worlds' cold starts that aren't kept yet, and keep them."""
    for world in (World(environment, number) for environment in ENVIRONMENTS for number in range(COLD_STARTS)):
        world.make()
        _say(str(keep(world)))


@main.command("margins")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--first", is_flag=True, help="By the first plan: ten fresh worlds, two models, with rescue.")
@click.option("--results", type=click.Path(path_type=Path), help="The folder of results.", show_default="here, by plan")
def show_margins(as_json: bool, first: bool, results: Path | None) -> None:
    """Judge the default method in each environment by the second plan, and name the runs that are missing."""
    if first:
        found = margins(read_lines(results or WORLDS), read_plan())
    else:
        found = judged(read_lines(results or SECOND), read_second_plan())
    if as_json:
        click.echo(json.dumps(found, indent=2))
    elif first:
        for regime, each in found["by_regime"].items():
            click.echo(f"{regime} ({each['worlds']} worlds, beside {each['comparator']}): {each['verdict']}")
            for name, margin in each["margins"].items():
                ends = f"({margin['low']} to {margin['high']})"
                click.echo(f"  {name:<18} {margin['mean']:+.3f} {ends}: {margin['verdict']}")
    else:
        for environment, each in found["by_environment"].items():
            missing = sum(map(len, each["missing"].values()))
            click.echo(f"{environment} ({each['models']} models): {each['verdict']}; {missing} runs are missing")
            for method, figures in each["methods"].items():
                apart = figures.get("default_minus_this")
                told = f"{apart['mean']:+.3f} ({apart['low']} to {apart['high']})" if apart else "the default"
                click.echo(f"  {method:<18} {figures['accuracy']['mean']:.3f}, {told}")


@main.command()
@minutes_option
@regime_option
@method_option
@seed_option
@click.option("--every", type=int, default=EVALUATE_EVERY, show_default=True, help="Steps between two models.")
@results_option
def larger_budget(
    minutes: float,
    regimes: tuple[str, ...],
    methods: tuple[str, ...],
    seeds: tuple[int, ...],
    every: int,
    results: Path,
) -> None:
    """Evaluate the models that runs have saved with more turns than they were trained with.

    \b
    Example:
      python -m benchmarks.lab larger-budget --regime drift --method grpo --method hindsight-successes
    """
    until = time.monotonic() + 60 * minutes
    measure(_chosen(regimes, methods, seeds), results, every, lambda: time.monotonic() > until, _say)


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@results_option
def status(as_json: bool, results: Path) -> None:
    """List what has run, and what hasn't."""
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
    """Write tables and plots into the documentation, between the marks there."""
    write_pages(PAGES, read_all(results), DOCS / "images")
    write_world_pages(WORLD_PAGES, Lines.kept(), read_plan(), DOCS / "images")
    click.echo("\n".join(map(str, (*PAGES, *WORLD_PAGES))))


def _chosen(regimes: tuple[str, ...], methods: tuple[str, ...], seeds: tuple[int, ...]) -> list[Run]:
    chosen = [
        run
        for run in order()
        if (not regimes or run.regime in regimes)
        and (not methods or run.method in methods)
        and (not seeds or run.seed in seeds)
    ]
    if not chosen:
        raise click.UsageError("the lab has no such run; `status` lists all runs")
    return chosen


def _progress(runs: list[Run], results: Path) -> str:
    finished = {each.run for each in read_all(results) if each.finished}
    return f"{len(finished.intersection(runs))} of {len(runs)} runs are finished"


def _say(words: str) -> None:
    click.echo(f"{time.strftime('%H:%M:%S')} {words}", err=True)


if __name__ == "__main__":  # the workers of `run-worlds` import this module too
    main()

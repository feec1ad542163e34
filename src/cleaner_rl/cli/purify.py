"""`cleaner purify`: repair logs that exist."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import click

from cleaner_rl.cli import options as shared
from cleaner_rl.cli.purify_report import as_text
from cleaner_rl.cli.purify_run import OtherRunError, Task, alone, begin, run
from cleaner_rl.cli.replay_settings import NO_SANDBOX, Replaying, Words
from cleaner_rl.cli.words import said
from cleaner_rl.purify import ReplayFaultError, SplicePolicy, Which, similarity_measures
from cleaner_rl.purify.logs.containers import LogError
from cleaner_rl.purify.logs.formats import Reading, log_format_names
from cleaner_rl.purify.logs.plans import PIECE_BYTES, Plan, plan
from cleaner_rl.purify.logs.sft import SftKind
from cleaner_rl.purify.logs.summary import Summary, total
from cleaner_rl.purify.logs.work import Job
from cleaner_rl.tools import call_format_names

WHERE = ("ray_address", "sandbox", "sandbox_token")
"""Options that say where it is done: a run may go on elsewhere."""
GO_ON = "What is done is kept: run the same command to go on"
FORMATS = click.Choice(log_format_names())


@click.command()
@click.argument("paths", nargs=-1, required=True)
@click.option("--out", required=True, help="Folder of the results; a run that was broken off goes on there.")
@click.option("--from", "form", type=FORMATS, help="Format of the logs; found out by their content if not given.")
@click.option("--calls", type=click.Choice(call_format_names()), help="Format of calls that stand in text.")
@click.option("--python-tool", multiple=True, metavar="NAME", help="A tool that runs Python, beside the usual names.")
@click.option("--run", "run_name", default="log", show_default=True, help="Name of the run in the store.")
@click.option("--convert-only", is_flag=True, help="Repair nothing.")
@click.option(
    "--threshold",
    type=shared.SHARE,
    default=0.5,
    show_default=True,
    help="Similarity from which on only the action is taken.",
)
@click.option(
    "--measure",
    type=click.Choice(similarity_measures()),
    default="difflib",
    show_default=True,
    help="How similar two programs are.",
)
@click.option("--refuse-stale", is_flag=True, help="Leave alone what would keep talking of an error that is gone.")
@click.option(
    "--which",
    type=click.Choice([each.value for each in Which]),
    default="all",
    show_default=True,
    help="Whose are repaired.",
)
@click.option(
    "--sft", type=click.Choice([each.value for each in SftKind]), help="Also write rows for supervised training."
)
@click.option("--clean-only", is_flag=True, help="In these rows: only trajectories without a failed call.")
@click.option("--same", is_flag=True, help="Also write the logs in the format that they came in.")
@click.option(
    "--verify",
    is_flag=True,
    help="Replay the Python of each trajectory; drop what doesn't give the same, from the store too.",
)
@click.option(
    "--session/--fresh",
    default=None,
    help="For --verify: one interpreter a trajectory, or one a call; default: one a call; if that differs, the other.",
)
@click.option(
    "--words",
    type=click.Choice([each.value for each in Words]),
    default="trimmed",
    show_default=True,
    help="For --verify.",
)
@shared.sandbox
@shared.sandbox_token
@click.option(
    "--roc", metavar="KEEP", type=click.IntRange(min=2), help="Keep so many attempts of each task, by GRPO-RoC."
)
@click.option("--seed", default=0, show_default=True, help="For --roc.")
@click.option("--jobs", type=shared.COUNT, default=1, show_default=True, help="Processes.")
@click.option("--ray", "on_ray", is_flag=True, help="On a Ray cluster, by Ray Data.")
@shared.ray_address
@click.option(
    "--piece-mb", type=shared.COUNT, default=PIECE_BYTES >> 20, show_default=True, help="Size of a unit of work."
)
@shared.as_json
def purify(paths: tuple[str, ...], out: str, as_json: bool, jobs: int, on_ray: bool, **options: Any) -> None:
    """Repair logs of agents: collapse each failed call onto the agent's own working correction.

    Reads JSONL, JSON and Parquet of OpenAI's messages, verl's rollout dumps, verifiers' traces, Inspect's .eval logs,
    ATIF, and our own store; from files, folders or object stores. What can't be read or judged goes through as it is.

    \b
    Examples:
      cleaner purify logs/ --out clean --sft jsonl
      cleaner purify run.eval --out clean --same --verify --fresh
      cleaner purify s3://bucket/dumps --out s3://bucket/clean --ray --ray-address auto
    """
    try:
        made = _plan(paths, out, options)
        with alone(out):
            summaries = _purified(made, out, jobs, on_ray, {**options, "paths": list(paths)})
    except (LogError, OtherRunError) as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(said(error)) from None
    except ReplayFaultError as error:
        raise click.ClickException(f"{error}. {GO_ON}") from None
    except BrokenProcessPool:
        raise click.ClickException(f"a process was killed, perhaps for want of memory. {GO_ON}") from None
    summary = total(summaries)
    if as_json:
        click.echo(json.dumps({**summary.as_json(), "skipped_files": list(made.skipped), "out": out}))
    else:
        click.echo(as_text(summary, made.skipped, out))


def _purified(made: Plan, out: str, jobs: int, on_ray: bool, options: dict[str, Any]) -> list[Summary]:
    """Do what is left to do; the summaries of all units."""
    job = _job(options)
    known = begin(out, made, {name: value for name, value in options.items() if name not in WHERE})
    tasks = [Task(unit, job, out, _replaying(options, job)) for unit in made.units if unit.number not in known]
    if options["roc"] is not None:
        from cleaner_rl.cli.purify_roc import choose

        with _bar("choosing", len(made.units)) as step:
            tasks = choose(made.units, tasks, job, options["roc"], options["seed"], jobs, step)
    summaries = list(known.values())
    with _bar("purifying", len(tasks)) as step:

        def done(summary: Summary) -> None:
            summaries.append(summary)
            step(1)

        if on_ray:
            from cleaner_rl.cli.purify_ray import run_on_ray

            run_on_ray(tasks, options["ray_address"], done)
        else:
            run(tasks, jobs, done)
    return summaries


def _plan(paths: tuple[str, ...], out: str, options: dict[str, Any]) -> Plan:
    with _bar("looking", None) as step:
        return plan(paths, options["form"], options["piece_mb"] << 20, lambda _: step(1), out)


def _job(options: dict[str, Any]) -> Job:
    policy = SplicePolicy(options["threshold"], options["measure"], options["refuse_stale"])
    reading = Reading(tuple(options["python_tool"]), options["calls"], options["run_name"])
    return Job(
        reading,
        None if options["convert_only"] else policy,
        Which(options["which"]),
        same=options["same"],
        sft=None if options["sft"] is None else SftKind(options["sft"]),
        clean_only=options["clean_only"],
    )


def _replaying(options: dict[str, Any], job: Job) -> Replaying | None:
    if not options["verify"]:
        return None
    if find_spec("aiohttp") is None:
        raise click.ClickException(NO_SANDBOX)
    words = Words(options["words"])
    return Replaying(
        options["session"], words, nodes=options["sandbox"], token=options["sandbox_token"], reading=job.reading
    )


@contextmanager
def _bar(label: str, length: int | None) -> Iterator[Callable[[int], None]]:
    """A progress bar on a terminal; of unknown length, only a count."""
    if length is None:
        yield lambda _: None
        return
    with click.progressbar(length=length, label=f"{label:10}", file=sys.stderr, hidden=not sys.stderr.isatty()) as bar:
        yield bar.update

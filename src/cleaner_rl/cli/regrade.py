"""`cleaner regrade`: stored rollouts, graded again."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import click

from cleaner_rl.cli import options, serving
from cleaner_rl.cli.words import show
from cleaner_rl.evaluate import Regraded, regraded_text
from cleaner_rl.evaluate import regrade as grade_again
from cleaner_rl.rollout import standard_graders
from cleaner_rl.tasks import MathPool
from cleaner_sandbox import open_sandbox


@click.command()
@click.argument("run", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--tasks",
    "sets",
    multiple=True,
    help="Data sets of the run; repeatable, or separated by commas. Default: those that the run names.",
)
@click.option("--dry-run", is_flag=True, help="Say what would change, and write nothing.")
@options.sandbox
@options.sandbox_token
@options.as_json
def regrade(run: Path, dry_run: bool, as_json: bool, **chosen: Any) -> None:
    """Grade the stored rollouts of RUN again with today's graders, and say what changed.

    RUN is a folder of `cleaner eval` or `cleaner rollout`. What the model sampled stays as it is; grades, rewards and
    the report are written anew. Use it after an upgrade of this package or of a grader.

    \b
    Example:
      cleaner regrade evals/Qwen3-4B --dry-run
    """
    with serving.explained():
        found = asyncio.run(_regrade(run, dry_run, chosen))
    show(json.dumps(found.to_json()) if as_json else regraded_text(found))


async def _regrade(run: Path, dry_run: bool, chosen: dict[str, Any]) -> Regraded:
    tasks = options.names_of(chosen["sets"])
    sandbox = {"urls": chosen["sandbox"], "token": chosen["sandbox_token"]}
    async with open_sandbox(**sandbox) as opened:
        with MathPool() as pool:
            return await grade_again(run, standard_graders(opened, pool), tasks=tasks, dry_run=dry_run)

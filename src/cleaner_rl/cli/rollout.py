"""`cleaner rollout`: tasks in, a store of trajectories out."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import click

from cleaner_rl.cli import model_options, options, serving
from cleaner_rl.cli.options import COUNT, SECONDS, SHARE
from cleaner_rl.cli.progress import progress
from cleaner_rl.cli.words import show
from cleaner_rl.purify import PurifyConfig, PurifyScope, RepairConfig
from cleaner_rl.rollout import Purifier, RolloutBudget, RolloutSummary, collect, open_runner
from cleaner_rl.tasks import Task, load_sets
from cleaner_rl.trajectory import RepairKind, RepairMode
from cleaner_sandbox import open_sandbox

REPAIR = {"off": None, "saar": RepairMode.SAAR, "hindsight": RepairMode.HINDSIGHT}
ELSEWHERE = (
    "url",
    "token",
    "sandbox",
    "sandbox_token",
    "concurrency",
    "retries",
    "patience",
    "as_json",
    "output",
)
"""Options that say where and how fast, not what: a run may go on under others."""


@click.command()
@options.tasks
@model_options.model
@click.option(
    "--url",
    multiple=True,
    required=True,
    help="Address of a replica; repeatable. For a chat API, with its path if that is not /v1.",
)
@model_options.engine
@click.option(
    "--out",
    "output",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the run. An existing folder is resumed.",
)
@click.option("--samples", type=COUNT, default=1, show_default=True, help="Rollouts of each task.")
@click.option("--limit", type=COUNT, help="Use only the first tasks, this many.")
@click.option(
    "--repair",
    type=click.Choice(list(REPAIR)),
    default="saar",
    show_default=True,
    help="Repair method: off, SAAR while the rollout runs, or hindsight afterwards.",
)
@options.prompt
@model_options.temperature
@click.option(
    "--top-p", type=SHARE, default=1.0, show_default=True, help="Nucleus sampling; 1 samples from all tokens."
)
@model_options.top_k
@model_options.template
@model_options.turns
@click.option(
    "--tokens",
    type=COUNT,
    default=16_384,
    show_default=True,
    help="Most tokens of all turns together, observations included.",
)
@click.option("--seconds", type=SECONDS, help="Wall-time limit of one rollout. Rollouts that reach it are not graded.")
@click.option(
    "--lookahead", default=16_384, show_default=True, help="Tokens that the repairs of one rollout may sample."
)
@model_options.window
@click.option("--attempts", type=COUNT, default=3, show_default=True, help="Most corrections that one repair samples.")
@click.option(
    "--threshold", type=SHARE, default=0.5, show_default=True, help="Similarity from which only the action is replaced."
)
@click.option(
    "--scope",
    type=click.Choice([each.value for each in PurifyScope]),
    show_default="all with saar, successful with hindsight",
    help="Which trajectories are purified: all, or those with a right answer.",
)
@click.option(
    "--rescore/--no-rescore",
    default=True,
    show_default=True,
    help="Compute log-probs of moved tokens in their new context. Without them, such rollouts can't be trained on.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of all random choices.")
@click.option("--run", "run_name", default="rollout", show_default=True, help="Name of the run in the store.")
@options.sandbox
@options.sandbox_token
@model_options.token
@model_options.concurrency
@click.option(
    "--retries",
    type=click.IntRange(min=0),
    default=2,
    show_default=True,
    help="How often a rollout is sampled again after a fault of the engine or the sandbox.",
)
@model_options.patience
@options.as_json
def rollout(**chosen: Any) -> None:
    """Let a model work on tasks, and store its trajectories.

    \b
    Example:
      vllm serve Qwen/Qwen3-4B --enable-prompt-tokens-details &
      cleaner rollout --tasks aime24=aime.parquet --model Qwen/Qwen3-4B \\
          --url http://127.0.0.1:8000 --samples 8 --out runs/first

    Trajectories land in OUT/trajectories a few seconds after they end. Killed, the same command goes on where it
    was: no task is lost, none is done twice. A fault of an engine or the sandbox is tried again, then kept as a fault,
    and tried once more by the next run. After a fault of its grader, a rollout is graded again, never sampled again.
    """
    output: Path = chosen["output"]
    mode = REPAIR[chosen["repair"]] or RepairMode.SAAR
    chosen["scope"] = PurifyConfig(scope=chosen["scope"]).scope_of(mode).value  # written down with the other settings
    with serving.explained():
        loaded = load_sets(options.names_of(chosen["sets"]), seed=chosen["seed"])
        tasks = [task for each in loaded.values() for task in each.tasks][: chosen["limit"]]
        summary = asyncio.run(_collect(tasks, output, chosen))
    show(json.dumps(summary.to_json()) if chosen["as_json"] else _table(summary, output))
    if summary.only_faults:
        raise click.ClickException(
            f"every rollout had a fault; the most frequent one: {summary.only_faults}. Fix its cause, then run the "
            "same command again"
        )


async def _collect(tasks: list[Task], output: Path, chosen: dict[str, Any]) -> RolloutSummary:
    async with (
        open_sandbox(**model_options.sandbox(chosen)) as sandbox,
        open_runner(
            model_options.connection(chosen),
            chosen["prompt"],
            sandbox,
            budget=RolloutBudget(chosen["turns"], chosen["tokens"], chosen["seconds"], chosen["lookahead"]),
            purifier=_purifier(chosen),
            seed=chosen["seed"],
            retries=chosen["retries"],
            concurrency=chosen["concurrency"],
        ) as runner,
    ):
        model_options.show_notes(runner)
        async with progress("rollouts", len(tasks) * chosen["samples"]) as update:
            return await collect(
                runner,
                tasks,
                output,
                samples=chosen["samples"],
                run=chosen["run_name"],
                settings={name: value for name, value in chosen.items() if name not in ELSEWHERE},
                progress=lambda summary: update(summary.rollouts, _note(summary)),
            )


def _purifier(chosen: dict[str, Any]) -> Purifier | None:
    mode = REPAIR[chosen["repair"]]
    if mode is None:
        return None
    config = PurifyConfig(
        attempts=chosen["attempts"],
        repair=RepairConfig(threshold=chosen["threshold"]),
        scope=PurifyScope(chosen["scope"]),
    )
    return Purifier(mode, config, rescore=chosen["rescore"])


def _note(summary: RolloutSummary) -> str:
    speed = summary.new_tokens / summary.seconds if summary.seconds else 0.0
    failed = summary.failed_calls / max(summary.rollouts, 1)
    return f"{speed:,.0f} tokens/s, {failed:.2f} failed calls each, {_repairs(summary)} repairs"


def _repairs(summary: RolloutSummary) -> int:
    return summary.edits[RepairKind.GRAFT] + summary.edits[RepairKind.REPLACE]


def _table(summary: RolloutSummary, output: Path) -> str:
    figures = summary.to_json()
    accuracy = "-" if figures["accuracy"] is None else f"{figures['accuracy']:.3f} of {summary.graded} graded"
    stopped = ", ".join(f"{number} {name}" for name, number in sorted(summary.stop_reasons.items())) or "none"
    lines = [
        f"rollouts      {summary.rollouts} ({summary.new} now): {stopped}",
        f"accuracy      {accuracy}",
        f"failed calls  {figures['errors_per_trajectory'] or 0:.3f} per trajectory "
        f"({figures['first_attempt_errors_per_trajectory'] or 0:.3f} before repair), {summary.calls} calls",
        f"repairs       {figures['grafts']} grafts, {figures['replacements']} replacements, "
        f"{figures['unrepaired']} failures without a correction",
        f"speed         {figures['tokens_per_second'] or 0:,.0f} tokens/s over {summary.seconds:.1f} s",
        f"store         {output / 'trajectories'}",
    ]
    lines += [f"fault         {number} × {reason}" for reason, number in summary.faults.most_common(5)]
    return "\n".join(lines)

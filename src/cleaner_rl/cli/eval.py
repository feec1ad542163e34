"""`cleaner eval`: how good is this model, alone and with repair?"""

from __future__ import annotations

import asyncio
import json
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from cleaner_rl.cli import eval_run, model_options, options, serving
from cleaner_rl.cli.options import COUNT, SECONDS, SHARE
from cleaner_rl.cli.progress import progress
from cleaner_rl.cli.words import show
from cleaner_rl.evaluate import (
    Evaluation,
    Repair,
    evaluate,
    load_plan,
    refuse_another_model,
    summary_text,
    unwritable,
)
from cleaner_rl.purify import PurifyConfig
from cleaner_rl.rollout import RolloutBudget, Sandbox, open_runner
from cleaner_rl.tasks import load_prompt
from cleaner_rl.train import RunEvaluation
from cleaner_sandbox import Limits, Node, SessionRequest, open_sandbox

REPAIRS = {"off": (Repair.OFF,), "on": (Repair.ON,), "both": (Repair.OFF, Repair.ON)}
FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command("eval")
@click.option(
    "--run",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of a training run: its plan gives model, tasks, prompt, sampling, budget, grader and sandbox. "
    "Other options override it. Serve the model yourself (--url).",
)
@click.option("--step", type=COUNT, help="With --run: the checkpoint of this step. Default: the last.")
@eval_run.optional(options.tasks)
@eval_run.optional(model_options.model)
@click.option(
    "--url",
    multiple=True,
    default=["http://127.0.0.1:8000"],
    show_default=True,
    help="Address of a replica; repeatable. For a chat API, with its path if that is not /v1.",
)
@model_options.engine
@click.option("--name", help="Name of this model or checkpoint in the results and the cache. Default: --model.")
@click.option("--limit", type=COUNT, help="Use only the first problems of each set, this many.")
@click.option(
    "--samples", type=COUNT, default=16, show_default=True, help="Rollouts of each problem, with repair and without."
)
@click.option(
    "--repair",
    type=click.Choice(list(REPAIRS)),
    default="both",
    show_default=True,
    help="Evaluate the model with repair off, on, or both.",
)
@click.option(
    "--attempts",
    type=COUNT,
    default=PurifyConfig().attempts,
    show_default=True,
    help="Most corrections that one repair samples.",
)
@click.option(
    "--recovery",
    type=click.IntRange(min=0),
    show_default="4 if the prompt's tool runs Python",
    help="Failures to inject into each problem; 0: none.",
)
@options.prompt
@model_options.temperature
@click.option(
    "--top-p", type=SHARE, default=0.6, show_default=True, help="Nucleus sampling; 1 samples from all tokens."
)
@model_options.top_k
@model_options.template
@model_options.turns
@click.option(
    "--tokens",
    type=COUNT,
    default=20_480,
    show_default=True,
    help="Most tokens of all turns together, observations included.",
)
@model_options.window
@click.option(
    "--tool-seconds", type=SECONDS, default=Limits().cpu_seconds, show_default=True, help="CPU-time limit of one call."
)
@click.option("--seed", default=0, show_default=True, help="Seed of all random choices.")
@options.sandbox
@options.sandbox_token
@model_options.token
@model_options.concurrency
@model_options.patience
@click.option("--out", type=FOLDER, help="Folder of the report. Default: evals/ and the model's name.")
@click.option("--cache", type=FOLDER, help="Folder where rollouts are kept. Default: trajectories/ in --out.")
@options.as_json
@click.pass_context
def eval(context: click.Context, /, **chosen: Any) -> None:  # noqa: A001 - the command's name
    """Judge a model: pass@k with intervals, its tool errors and its cost, with repair off and on side by side.

    The figure to claim is the one with repair off. Writes results.json, report.md and report.html. A run that was
    stopped goes on where it was; more samples or sets add to what is there.

    \b
    Example:
      vllm serve Qwen/Qwen3-4B --enable-prompt-tokens-details &
      cleaner eval --model Qwen/Qwen3-4B --tasks aime24,aime25,gpqa,lcb-v6 --samples 16
      cleaner eval --run runs/saar-4b --step 200
    """
    trained = eval_run.settings_of_run(context, chosen)
    name = chosen["name"] or chosen["model"]
    out: Path = chosen["out"] or Path("evals") / Path(name).name
    with serving.explained():
        refuse_another_model(out, name)  # before a model is connected to
        result = asyncio.run(_evaluate(name, out, chosen, trained))
    show(json.dumps(result.to_json()) if chosen["as_json"] else f"{summary_text(result)} Report: {out}/report.html")
    if not any(run.problems for each in result.sets for run in each.runs.values()):
        raise click.ClickException(f"no sample could be judged: {result.faults or 'the sets are empty'}")


async def _evaluate(name: str, out: Path, chosen: dict[str, Any], trained: RunEvaluation | None) -> Evaluation:
    prompt = load_prompt(chosen["prompt"])
    if chosen["recovery"] is None and (why := unwritable(prompt)):
        show(f"note: no failures are injected, because {why}", err=True)
    plan = load_plan(
        options.names_of(chosen["sets"]),
        prompt,
        samples=chosen["samples"],
        repairs=REPAIRS[chosen["repair"]],
        config=PurifyConfig(attempts=chosen["attempts"]),
        failures=chosen["recovery"],
        seed=chosen["seed"],
        limit=chosen["limit"],
    )
    connection = model_options.connection(chosen)
    request, graders = SessionRequest(limits=Limits(cpu_seconds=chosen["tool_seconds"])), None
    opened: AbstractAsyncContextManager[Sandbox] = open_sandbox(**model_options.sandbox(chosen))
    if trained is not None:
        limits = replace(trained.request.limits or Limits(), cpu_seconds=chosen["tool_seconds"])
        request, graders = replace(trained.request, limits=limits), trained.graders()
        plan = replace(plan, sets={each: [*map(trained.graded, tasks)] for each, tasks in plan.sets.items()})
        if not chosen["sandbox"] and trained.node is not None:
            opened = Node(trained.node)
    count = eval_run.CallCounts()
    async with (
        opened as sandbox,
        open_runner(
            connection,
            prompt,
            sandbox,
            request=request,
            graders=graders,
            budget=RolloutBudget(turns=chosen["turns"], tokens=chosen["tokens"], lookahead=chosen["tokens"]),
            concurrency=chosen["concurrency"],
        ) as runner,
    ):
        model_options.show_notes(runner)
        async with progress("eval", sum(1 for _ in plan.jobs())) as update:
            result = await evaluate(
                plan,
                runner,
                out,
                name=name,
                model=chosen["model"],
                settings={
                    "engine": chosen["engine"],
                    **asdict(connection.sampling),
                    **({"template": dict(connection.template)} if connection.template else {}),
                    "tool_seconds": chosen["tool_seconds"],
                    "memory_mb": (request.limits or Limits()).memory_mb,
                    "environment": request.environment,
                    **({"grader": trained.reward_function} if trained is not None and graders else {}),
                },
                cache=chosen["cache"],
                done=eval_run.counted(update, count),
            )
    if count.text:
        show(count.text, err=True)
    return result

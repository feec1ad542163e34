"""`cleaner eval`: how good is this model, alone and with repair?"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from cleaner_rl import __version__
from cleaner_rl.cli import serving
from cleaner_rl.evaluate import Evaluation, Repair
from cleaner_rl.evaluate.cache import fingerprint, model_identity
from cleaner_rl.evaluate.measures import measure
from cleaner_rl.evaluate.recovery import KINDS
from cleaner_rl.evaluate.report import markdown, tables, words, write_report
from cleaner_rl.evaluate.running import Bench, Found, Plan, Way, evaluate, open_caches
from cleaner_rl.purify import PurifyPolicy
from cleaner_rl.rollout import RolloutBudget, Sampling
from cleaner_rl.sandbox import Limits
from cleaner_rl.tasks import DatasetError, load_named, load_prompt
from cleaner_rl.trajectory import AnyTrajectory

REPAIRS = {"off": (Repair.OFF,), "on": (Repair.ON,), "both": (Repair.OFF, Repair.ON)}


@click.command("eval")
@click.option(
    "--model", required=True, metavar="NAME", help="Folder or hub name: it names the report and the tokenizer."
)
@click.option("--url", default="http://127.0.0.1:8000", show_default=True, help="Where the model is served.")
@click.option(
    "--api",
    type=click.Choice(serving.APIS),
    default="vllm",
    show_default=True,
    help="By what; chat: any OpenAI-compatible address, such as https://host/v1.",
)
@click.option("--window", default=32_768, show_default=True, help="Tokens of a context, where --api chat can't tell.")
@click.option("--token", envvar="CLEANER_ENGINE_TOKEN", help="For an engine that wants one.")
@click.option("--tokenizer", metavar="NAME", help="Folder or hub name; default: the model's.")
@click.option("--tasks", "named", required=True, metavar="SETS", help="Such as aime24,gpqa=gpqa.parquet,mine.jsonl.")
@click.option("--samples", default=16, show_default=True, help="Rollouts of each problem, each way.")
@click.option("--repair", type=click.Choice(list(REPAIRS)), default="both", show_default=True)
@click.option("--attempts", default=PurifyPolicy().attempts, show_default=True, help="Of a repair, at most.")
@click.option("--recovery", default=4, show_default=True, help="Failures to put into each problem; 0: none.")
@click.option("--temperature", default=1.0, show_default=True)
@click.option("--top-p", default=0.6, show_default=True, help="1 to sample from the whole distribution.")
@click.option("--turns", default=16, show_default=True, help="Of a rollout, at most.")
@click.option("--tokens", default=20_480, show_default=True, help="Of all turns together, observations included.")
@click.option("--tool-seconds", default=Limits().cpu_seconds, show_default=True, help="CPU time of a call.")
@click.option("--prompt", default="stateless", show_default=True, help="Name, or a .toml file of your own.")
@click.option("--sandbox", metavar="URL", help="Where calls run; default: a node of this command's own.")
@click.option("--sandbox-token", envvar="CLEANER_SANDBOX_TOKEN", help="For --sandbox, if it wants one.")
@click.option("--seed", default=0, show_default=True)
@click.option("--concurrency", default=64, show_default=True, help="Rollouts at the same time.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Default: evals/ and the model's name.")
@click.option("--cache", type=click.Path(file_okay=False, path_type=Path), help="Default: trajectories/ in --out.")
@click.option("--json", "as_json", is_flag=True, help="Print one object.")
def eval(**options: Any) -> None:  # noqa: A001 - the command's name
    """Judge a model: pass@k with intervals, its tool errors and its cost, with repair off and on side by side.

    The figure to claim is the one with repair off. Writes results.json, report.md and report.html. A run that was
    stopped goes on where it was; more samples or sets add to what is there.

    \b
    Example:
      vllm serve Qwen/Qwen3-4B --enable-prompt-tokens-details &
      cleaner eval --model Qwen/Qwen3-4B --tasks aime24,aime25,gpqa,lcb-v6 --samples 16
    """
    out = options["out"] or Path("evals") / Path(options["model"]).name
    try:
        plan, skipped = _plan(options)
        result = asyncio.run(_run(plan, options, options["cache"] or out / "trajectories", skipped))
        write_report(result, out)
    except (DatasetError, LookupError, ValueError, ImportError, OSError) as error:
        raise click.ClickException(str(error)) from None
    if options["as_json"]:
        click.echo(json.dumps(result.to_json()))
    else:
        click.echo(
            f"{markdown.table(tables.scores(result))}\n\n{words.CLAIM.capitalize()}. Report: {out / 'report.html'}"
        )
    if not any(arm.problems for each in result.sets for arm in each.arms.values()):
        raise click.ClickException("no sample could be judged; the report says what broke")


def _plan(options: Mapping[str, Any]) -> tuple[Plan, dict[str, int]]:
    """What to run, and how many rows of each set can't be."""
    loaded = dict(
        load_named(each.strip(), seed=options["seed"]) for each in options["named"].split(",") if each.strip()
    )
    plan = Plan(
        sets={name: each.tasks for name, each in loaded.items()},
        samples=options["samples"],
        repairs=REPAIRS[options["repair"]],
        failures=options["recovery"],
        policy=PurifyPolicy(attempts=options["attempts"]),
        seed=options["seed"],
    )
    return plan, {name: len(each.skipped) for name, each in loaded.items() if each.skipped}


async def _run(plan: Plan, options: Mapping[str, Any], folder: Path, skipped: Mapping[str, int]) -> Evaluation:
    prompt = load_prompt(options["prompt"])
    sampling = Sampling(options["temperature"], options["top_p"])
    budget = RolloutBudget(turns=options["turns"], tokens=options["tokens"], lookahead=options["tokens"])
    limits = Limits(cpu_seconds=options["tool_seconds"])
    shown: dict[str, object] = {
        "api": options["api"],
        "prompt": options["prompt"],
        **asdict(sampling),
        "turns": budget.turns,
        "tokens": budget.tokens,
        "tool_seconds": limits.cpu_seconds,
        "seed": plan.seed,
    }
    identity = {**model_identity(options["model"]), **shown, "words": fingerprint(asdict(prompt))}
    ways: dict[Way, dict[str, object]] = {
        Way.OFF: identity,
        Way.ON: {**identity, "policy": asdict(plan.policy)},
        Way.RECOVERY: {**identity, "failures": fingerprint({name: asdict(kind) for name, kind in KINDS.items()})},
    }
    async with (
        serving.open_sandbox(options["sandbox"], options["sandbox_token"]) as sandbox,
        serving.open_model(
            options["api"],
            options["url"],
            options["model"],
            options["tokenizer"] or options["model"],
            prompt,
            sampling,
            options["window"],
            options["token"],
        ) as model,
    ):
        with serving.graders(plan.tasks.values(), sandbox) as graders, ExitStack() as flushing:
            caches = {way: flushing.enter_context(cache) for way, cache in open_caches(folder, ways).items()}
            tools = serving.toolbox(prompt, sandbox, limits)
            bench = Bench(model, tools, graders, prompt, budget, options["concurrency"])
            found = await _watched(plan, bench, caches)
    more = {"attempts": plan.policy.attempts, "concurrency": options["concurrency"], "cleaner-rl": __version__}
    rows = (
        {"rows that are no tasks": ", ".join(f"{name}: {count}" for name, count in skipped.items())} if skipped else {}
    )
    return found.results(plan, options["model"], {**shown, **more, **rows})


async def _watched(plan: Plan, bench: Bench, caches: Any) -> Found:
    """The run, with a bar on a terminal: how far it is, errors per trajectory, and how fast."""
    begun = time.monotonic()
    lengths = failed = seen = 0
    total = sum(1 for _ in plan.jobs())
    with click.progressbar(
        length=total,
        label="eval",
        file=sys.stderr,
        hidden=not sys.stderr.isatty(),
        item_show_func=lambda shown: shown,
    ) as bar:

        def done(trajectory: AnyTrajectory, cached: bool) -> None:
            nonlocal lengths, failed, seen
            if not cached:
                sample = measure(trajectory)
                lengths, failed, seen = (
                    lengths + sample.sampled + sample.lookahead,
                    failed + sample.failed_first,
                    seen + 1,
                )
            speed = lengths / (time.monotonic() - begun)
            bar.update(1, f"{speed:,.0f} tokens/s, {failed / seen:.2f} errors each" if seen else "from the cache")

        return await evaluate(plan, bench, caches, done)

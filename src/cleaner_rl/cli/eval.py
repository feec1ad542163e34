"""`cleaner eval`: how good is this model, alone and with repair?"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from cleaner_rl import __version__
from cleaner_rl.cli import model_options, options, serving
from cleaner_rl.cli.options import COUNT, SECONDS, SHARE
from cleaner_rl.evaluate import Evaluation, Repair, ResultsError, read_results
from cleaner_rl.evaluate.cache import fingerprint, model_identity, open_cache
from cleaner_rl.evaluate.measures import measure
from cleaner_rl.evaluate.recovery import unwritable
from cleaner_rl.evaluate.report import markdown, tables, words, write_report
from cleaner_rl.evaluate.running import Found, Plan, evaluate
from cleaner_rl.purify import PurifyPolicy
from cleaner_rl.rollout import RolloutBudget, Sampling, TokenModel, toolbox_of
from cleaner_rl.rollout.engines import Connection, Engine, connect
from cleaner_rl.rollout.graders import standard_graders
from cleaner_rl.rollout.journal import Journal
from cleaner_rl.rollout.many import Bench
from cleaner_rl.sandbox import Limits, SessionRequest
from cleaner_rl.tasks import Loaded, MathPool, Prompt, load_named, load_prompt
from cleaner_rl.trajectory import AnyTrajectory

REPAIRS = {"off": (Repair.OFF,), "on": (Repair.ON,), "both": (Repair.OFF, Repair.ON)}
FAILURES = 4
FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command("eval")
@options.tasks
@model_options.model
@click.option(
    "--url",
    multiple=True,
    default=["http://127.0.0.1:8000"],
    show_default=True,
    help="Of a replica; repeatable. Of a chat API with its path, if that isn't /v1.",
)
@model_options.engine
@click.option("--name", help="What to call this model or checkpoint; default: --model. What is kept is kept under it.")
@click.option(
    "--samples", type=COUNT, default=16, show_default=True, help="Rollouts of each problem, with repair and without."
)
@click.option(
    "--repair",
    type=click.Choice(list(REPAIRS)),
    default="both",
    show_default=True,
    help="The model alone, helped, or both.",
)
@click.option(
    "--attempts", type=COUNT, default=PurifyPolicy().attempts, show_default=True, help="Of a repair, at most."
)
@click.option(
    "--recovery",
    type=click.IntRange(min=0),
    show_default=f"{FAILURES} if the prompt's tool runs Python",
    help="Failures to put into each problem; 0: none.",
)
@options.prompt
@model_options.temperature
@click.option("--top-p", type=SHARE, default=0.6, show_default=True, help="1 to sample from the whole distribution.")
@model_options.turns
@click.option(
    "--tokens", type=COUNT, default=20_480, show_default=True, help="The most of all turns, observations included."
)
@model_options.window
@click.option(
    "--tool-seconds", type=SECONDS, default=Limits().cpu_seconds, show_default=True, help="CPU time of a call."
)
@click.option("--seed", default=0, show_default=True, help="Of all that is drawn.")
@options.sandbox
@options.sandbox_token
@model_options.slots
@model_options.token
@model_options.concurrency
@model_options.patience
@click.option("--out", type=FOLDER, help="Default: evals/ and the model's name.")
@click.option("--cache", type=FOLDER, help="Where rollouts are kept; default: trajectories/ in --out.")
@options.as_json
def eval(**chosen: Any) -> None:  # noqa: A001 - the command's name
    """Judge a model: pass@k with intervals, its tool errors and its cost, with repair off and on side by side.

    The figure to claim is the one with repair off. Writes results.json, report.md and report.html. A run that was
    stopped goes on where it was; more samples or sets add to what is there.

    \b
    Example:
      vllm serve Qwen/Qwen3-4B --enable-prompt-tokens-details &
      cleaner eval --model Qwen/Qwen3-4B --tasks aime24,aime25,gpqa,lcb-v6 --samples 16
    """
    name = chosen["name"] or chosen["model"]
    out: Path = chosen["out"] or Path("evals") / Path(name).name
    _refuse_another_model(out, name)
    with serving.explained():
        plan, skipped = _plan(chosen)
        found, shown = asyncio.run(_run(plan, name, chosen, chosen["cache"] or out / "trajectories"))
        result = found.results(plan, name, {**shown, **skipped})
        write_report(result, out)
    click.echo(json.dumps(result.to_json()) if chosen["as_json"] else _summary(result, out))
    if not any(arm.problems for each in result.sets for arm in each.arms.values()):
        raise click.ClickException(f"no sample could be judged{_broken(result) or ': the sets are empty'}")


def _refuse_another_model(out: Path, name: str) -> None:
    """Checkpoints lie in folders whose last name is often the same; one's results must not replace another's."""
    with suppress(ResultsError):
        there = read_results(out / "results.json").model
        if there != name:
            raise click.ClickException(
                f"{out} holds the results of {there}, and this is {name}: give another --out, or call this one by a "
                "--name of its own"
            )


def _plan(chosen: Mapping[str, Any]) -> tuple[Plan, dict[str, object]]:
    """What to run, and what of it can't be, as a line among the settings."""
    failures = _failures(chosen["recovery"], load_prompt(chosen["prompt"]))
    loaded: dict[str, Loaded] = {}
    for named in options.names_of(chosen["sets"]):
        name, found = load_named(named, seed=chosen["seed"])
        if name in loaded:
            raise ValueError(f"two sets are called '{name}', and figures go by that name: rename one of the files")
        loaded[name] = found
    plan = Plan(
        sets={name: each.tasks for name, each in loaded.items()},
        samples=chosen["samples"],
        repairs=REPAIRS[chosen["repair"]],
        failures=failures,
        policy=PurifyPolicy(attempts=chosen["attempts"]),
        seed=chosen["seed"],
    )
    skipped = ", ".join(f"{name}: {len(each.skipped)}" for name, each in loaded.items() if each.skipped)
    return plan, {"rows that are no tasks": skipped} if skipped else {}


def _failures(asked: int | None, prompt: Prompt) -> int:
    """How many to put into each problem: what was asked for, or as many as the prompt's tool allows."""
    why = unwritable(prompt)
    if asked and why:
        raise ValueError(f"--recovery {asked}: {why}; leave the option out")
    if asked is None and why:
        click.echo(f"note: no failures are put in, because {why}", err=True)
        return 0
    return FAILURES if asked is None else asked


async def _run(plan: Plan, name: str, chosen: Mapping[str, Any], folder: Path) -> tuple[Found, dict[str, object]]:
    """What came of the plan, and the settings that it depends on."""
    prompt = load_prompt(chosen["prompt"])
    connection = Connection(
        chosen["url"],
        chosen["model"],
        Engine(chosen["engine"]),
        window=chosen["window"],
        sampling=Sampling(chosen["temperature"], chosen["top_p"]),
        token=chosen["token"],
        patience=chosen["patience"],
    )
    budget = RolloutBudget(turns=chosen["turns"], tokens=chosen["tokens"], lookahead=chosen["tokens"])
    nodes = serving.open_sandbox(
        chosen["sandbox"],
        token=chosen["sandbox_token"],
        patience=chosen["patience"],
        slots=chosen["slots"],
        sessions=chosen["concurrency"],
    )
    async with nodes as sandbox, connect(connection, prompt) as model:
        if isinstance(model, TokenModel):
            for note in model.chat.notes:
                click.echo(f"note: {note}", err=True)
        settings: dict[str, object] = {
            "engine": chosen["engine"],
            "prompt": prompt.name,
            **asdict(connection.sampling),
            "turns": budget.turns,
            "tokens": budget.tokens,
            "window": model.window // model.unit,
            "tool_seconds": chosen["tool_seconds"],
            "seed": plan.seed,
            "cleaner-rl": __version__,
        }
        identity = {**model_identity(chosen["model"]), "name": name, **settings, "words": fingerprint(asdict(prompt))}
        limits = Limits(cpu_seconds=chosen["tool_seconds"])
        tools = toolbox_of(prompt, sandbox, SessionRequest(limits=limits))
        with open_cache(folder, identity, plan.tasks) as journal, MathPool() as pool:
            bench = Bench(model, tools, prompt, standard_graders(sandbox, pool), budget)
            found = await _watched(plan, bench, journal, chosen["concurrency"])
    more = {"samples": plan.samples, "attempts": plan.policy.attempts, "recovery": plan.failures}
    return found, {**settings, **more, "concurrency": chosen["concurrency"]}


def _summary(result: Evaluation, out: Path) -> str:
    scores = markdown.table(tables.scores(result))
    broken = _broken(result)
    lost = f"Samples in no figure: {result.faults.total():,}{broken}\n\n" if broken else ""
    return f"{scores}\n\n{lost}{words.CLAIM.capitalize()}. Report: {out / 'report.html'}"


def _broken(result: Evaluation) -> str:
    """What kept most samples out of the figures; empty if nothing did."""
    return "".join(f"; what broke most: {reason}" for reason, _ in result.faults.most_common(1))


async def _watched(plan: Plan, bench: Bench, journal: Journal, concurrency: int) -> Found:
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

        return await evaluate(plan, bench, journal, done, concurrency=concurrency)

"""`cleaner rollout`: tasks in, a store of trajectories out."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import click

from cleaner_rl.cli import serving
from cleaner_rl.cli.rollout_watch import Watch
from cleaner_rl.purify import Phase, PurifyPolicy, SplicePolicy, Unrepaired, Which
from cleaner_rl.rollout import (
    Purifier,
    RolloutBudget,
    Sampling,
    TokenModel,
    toolbox_of,
)
from cleaner_rl.rollout.engines import Connection, Engine, connect
from cleaner_rl.rollout.graders import standard_graders
from cleaner_rl.rollout.journal import Journal
from cleaner_rl.rollout.many import Bench, roll_out
from cleaner_rl.tasks import MathPool, RewardScale, Task, load_named, load_prompt
from cleaner_rl.trajectory import Key, Mode

REPAIR = {"off": None, "on": Mode.LIVE, "live": Mode.LIVE, "hindsight": Mode.HINDSIGHT}
ELSEWHERE = (
    "url",
    "token",
    "sandbox",
    "sandbox_token",
    "slots",
    "concurrency",
    "retries",
    "patience",
    "as_json",
    "output",
)
"""Options that say where and how fast, not what: a run may go on under others."""


@click.command()
@click.option(
    "--tasks", "sets", multiple=True, required=True, help="aime24=FILE, mine.jsonl, a name on the hub; repeatable."
)
@click.option(
    "--model",
    required=True,
    help="Folder or hub name, for its tokenizer; with --engine chat the service's name for it.",
)
@click.option("--url", multiple=True, required=True, help="Address of a replica; repeatable.")
@click.option("--engine", type=click.Choice([each.value for each in Engine]), default="vllm", show_default=True)
@click.option(
    "--output",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the run; one that exists is gone on with.",
)
@click.option("--samples", default=1, show_default=True, help="Rollouts of each task.")
@click.option("--limit", type=int, help="Only the first so many tasks.")
@click.option(
    "--repair",
    type=click.Choice(list(REPAIR)),
    default="live",
    show_default=True,
    help="While it runs, afterwards, or not.",
)
@click.option(
    "--prompt", default="stateless", show_default=True, help="Name or .toml file: system words, tool, answer format."
)
@click.option("--temperature", default=1.0, show_default=True)
@click.option("--top-p", default=1.0, show_default=True)
@click.option("--top-k", type=int)
@click.option("--turns", default=16, show_default=True, help="The most of one rollout.")
@click.option("--tokens", default=16_384, show_default=True, help="The most of all turns, observations included.")
@click.option("--seconds", type=float, help="Wall time of one rollout; those that run into it are not graded.")
@click.option(
    "--lookahead", default=16_384, show_default=True, help="Tokens that the repairs of one rollout may sample."
)
@click.option("--window", type=int, help="The model's context, in tokens; default: what the server says.")
@click.option("--attempts", default=3, show_default=True, help="Corrections that a repair samples at most.")
@click.option("--threshold", default=0.5, show_default=True, help="Similarity from which only the action is replaced.")
@click.option(
    "--which",
    type=click.Choice([each.value for each in Which]),
    default="all",
    show_default=True,
    help="Whose trajectories are purified.",
)
@click.option(
    "--unrepaired", type=click.Choice([each.value for each in Unrepaired]), default="keep_attempts", show_default=True
)
@click.option("--probability", default=1.0, show_default=True, help="Share of the trajectories that is purified.")
@click.option(
    "--rescore/--no-rescore",
    default=True,
    help="Log-probs of moved tokens where they stand now; without, none to train on.",
)
@click.option("--reward", type=click.Choice([each.value for each in RewardScale]), default="signed", show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--run", "run_name", default="rollout", show_default=True, help="Name of the run in the store.")
@click.option("--step", default=0, show_default=True, help="Training step of the model.")
@click.option("--sandbox", multiple=True, help="Address of a sandbox node; repeatable. Default: one is started here.")
@click.option("--sandbox-token", envvar="CLEANER_SANDBOX_TOKEN", help="For --sandbox, if the nodes want one.")
@click.option("--slots", type=int, help="Of the sandbox that is started here.")
@click.option("--token", envvar="CLEANER_ENGINE_TOKEN", help="For --url, if the engine wants one.")
@click.option("--concurrency", default=64, show_default=True, help="Rollouts at the same time.")
@click.option("--retries", default=2, show_default=True, help="Of a rollout that ended in a fault.")
@click.option(
    "--patience",
    default=300.0,
    show_default=True,
    help="Seconds that a request waits for an engine or a sandbox that is away.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one object at the end.")
def rollout(**options: Any) -> None:
    """Let a model work on tasks, and keep what comes of it.

    \b
    Example:
      vllm serve Qwen/Qwen3-4B --enable-prompt-tokens-details &
      cleaner rollout --tasks aime24=aime.parquet --model Qwen/Qwen3-4B \\
          --url http://127.0.0.1:8000 --samples 8 --output runs/first

    Trajectories land in OUTPUT/trajectories a few seconds after they end. Killed, the same command goes on where it
    was: no task is lost, none is done twice. A fault of an engine or the sandbox is tried again, then kept as a fault.
    """
    output: Path = options["output"]
    with serving.explained():
        tasks = _tasks(options["sets"], options["limit"], options["seed"])
        _settle(output, {name: value for name, value in options.items() if name not in ELSEWHERE})
        with Journal(output / "trajectories") as journal:
            watch = asyncio.run(_run(tasks, journal, output, options))
    click.echo(json.dumps(watch.summary()) if options["as_json"] else watch.table(output))


async def _run(tasks: list[Task], journal: Journal, output: Path, options: dict[str, Any]) -> Watch:
    prompt = load_prompt(options["prompt"])
    connection = Connection(
        options["url"],
        options["model"],
        Engine(options["engine"]),
        window=options["window"],
        sampling=Sampling(options["temperature"], options["top_p"], options["top_k"]),
        token=options["token"],
        patience=options["patience"],
    )
    nodes = serving.open_sandbox(
        options["sandbox"],
        token=options["sandbox_token"],
        patience=options["patience"],
        slots=options["slots"],
        sessions=options["concurrency"],
    )
    async with nodes as sandbox, connect(connection, prompt) as model:
        with MathPool() as pool:
            toolbox = toolbox_of(prompt, sandbox)
            purifier = _purifier(options)
            bench = Bench(
                model,
                toolbox,
                prompt,
                standard_graders(sandbox, pool),
                RolloutBudget(options["turns"], options["tokens"], options["seconds"], options["lookahead"]),
                purifier,
                RewardScale(options["reward"]),
                options["seed"],
                options["retries"],
            )
            if isinstance(model, TokenModel):
                if purifier is not None and purifier.rescore:
                    model.gate(Key(), purifier.max_gap)  # refused at once where it would be refused later
                for note in model.chat.notes:
                    click.echo(f"note: {note}", err=True)
                model.chat.save_tokenizer(output)
            jobs = [
                (task, Key(options["run_name"], options["step"], task.id, number))
                for task in tasks
                for number in range(options["samples"])
            ]
            before = [trajectory for trajectory in journal.stored() if trajectory.key in {key for _, key in jobs}]
            with Watch(len(jobs), before) as watch:
                await roll_out(jobs, bench.one, journal, concurrency=options["concurrency"], done=watch.add)
            return watch


def _purifier(options: dict[str, Any]) -> Purifier | None:
    mode = REPAIR[options["repair"]]
    if mode is None:
        return None
    policy = PurifyPolicy(
        attempts=options["attempts"],
        splice=SplicePolicy(threshold=options["threshold"]),
        probability=options["probability"],
        which=Which(options["which"]),
        unrepaired=Unrepaired(options["unrepaired"]),
    )
    return Purifier(mode, policy, Phase.TRAINING, options["rescore"])


def _tasks(sets: tuple[str, ...], limit: int | None, seed: int) -> list[Task]:
    tasks: dict[str, Task] = {}
    for named in sets:
        for task in load_named(named, seed=seed)[1].tasks:
            if task.id in tasks:
                raise ValueError(f"two tasks have the id '{task.id}'; name each set once, and give own tasks own ids")
            tasks[task.id] = task
    return list(tasks.values())[:limit]


def _settle(output: Path, options: dict[str, Any]) -> None:
    """Keep what a run was begun with, and hold those to it who go on with it."""
    file = output / "settings.json"
    now = json.loads(json.dumps(options, default=str))
    if not file.exists():
        output.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_name(f".settings.{os.getpid()}")
        unfinished.write_text(json.dumps(now, indent=1) + "\n")
        os.replace(unfinished, file)
        return
    before = json.loads(file.read_text())
    changed = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    if changed:
        listed = ", ".join(f"{name} ({before.get(name)} then, {now.get(name)} now)" for name in changed)
        raise ValueError(
            f"{output} was begun with other settings: {listed}; choose another --output, or go on with these"
        )

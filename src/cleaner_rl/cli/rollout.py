"""`cleaner rollout`: tasks in, a store of trajectories out."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import click

from cleaner_rl.cli import model_options, options, serving
from cleaner_rl.cli.options import COUNT, SECONDS, SHARE
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
@options.tasks
@model_options.model
@click.option(
    "--url",
    multiple=True,
    required=True,
    help="Address of a replica; repeatable. Of a chat API with its path, if that isn't /v1.",
)
@model_options.engine
@click.option(
    "--out",
    "output",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the run; one that exists is gone on with.",
)
@click.option("--samples", type=COUNT, default=1, show_default=True, help="Rollouts of each task.")
@click.option("--limit", type=COUNT, help="Only the first so many tasks.")
@click.option(
    "--repair",
    type=click.Choice(list(REPAIR)),
    default="live",
    show_default=True,
    help="While it runs, afterwards, or not.",
)
@options.prompt
@model_options.temperature
@click.option("--top-p", type=SHARE, default=1.0, show_default=True, help="1 to sample from the whole distribution.")
@click.option("--top-k", type=COUNT, help="Default: all tokens.")
@model_options.turns
@click.option(
    "--tokens", type=COUNT, default=16_384, show_default=True, help="The most of all turns, observations included."
)
@click.option("--seconds", type=SECONDS, help="Wall time of one rollout; those that run into it are not graded.")
@click.option(
    "--lookahead", default=16_384, show_default=True, help="Tokens that the repairs of one rollout may sample."
)
@model_options.window
@click.option("--attempts", type=COUNT, default=3, show_default=True, help="Corrections that a repair samples at most.")
@click.option(
    "--threshold", type=SHARE, default=0.5, show_default=True, help="Similarity from which only the action is replaced."
)
@click.option(
    "--which",
    type=click.Choice([each.value for each in Which]),
    default="all",
    show_default=True,
    help="Whose trajectories are purified.",
)
@click.option(
    "--unrepaired",
    type=click.Choice([each.value for each in Unrepaired]),
    default="keep_attempts",
    show_default=True,
    help="What becomes of a failure that no attempt mended.",
)
@click.option(
    "--probability", type=SHARE, default=1.0, show_default=True, help="Share of the trajectories that is purified."
)
@click.option(
    "--rescore/--no-rescore",
    default=True,
    show_default=True,
    help="Log-probs of moved tokens where they stand now; without, none to train on.",
)
@click.option(
    "--reward",
    type=click.Choice([each.value for each in RewardScale]),
    default="signed",
    show_default=True,
    help="-1 and 1, or 0 and 1.",
)
@click.option("--seed", default=0, show_default=True, help="Of all that is drawn.")
@click.option("--run", "run_name", default="rollout", show_default=True, help="Name of the run in the store.")
@click.option("--step", default=0, show_default=True, help="Training step of the model.")
@options.sandbox
@options.sandbox_token
@model_options.slots
@model_options.token
@model_options.concurrency
@click.option(
    "--retries", type=click.IntRange(min=0), default=2, show_default=True, help="Of a rollout that ended in a fault."
)
@model_options.patience
@options.as_json
def rollout(**chosen: Any) -> None:
    """Let a model work on tasks, and keep what comes of it.

    \b
    Example:
      vllm serve Qwen/Qwen3-4B --enable-prompt-tokens-details &
      cleaner rollout --tasks aime24=aime.parquet --model Qwen/Qwen3-4B \\
          --url http://127.0.0.1:8000 --samples 8 --out runs/first

    Trajectories land in OUT/trajectories a few seconds after they end. Killed, the same command goes on where it
    was: no task is lost, none is done twice. A fault of an engine or the sandbox is tried again, then kept as a fault.
    """
    output: Path = chosen["output"]
    with serving.explained():
        tasks = _tasks(options.names_of(chosen["sets"]), chosen["limit"], chosen["seed"])
        _settle(output, {name: value for name, value in chosen.items() if name not in ELSEWHERE})
        with Journal(output / "trajectories") as journal:
            watch = asyncio.run(_run(tasks, journal, output, chosen))
    click.echo(json.dumps(watch.summary()) if chosen["as_json"] else watch.table(output))
    if watch.all_faults:
        raise click.ClickException(
            f"every rollout ended in a fault, first: {watch.all_faults}. Mend it; the same command tries again under "
            "another --out"
        )


async def _run(tasks: list[Task], journal: Journal, output: Path, chosen: dict[str, Any]) -> Watch:
    prompt = load_prompt(chosen["prompt"])
    connection = Connection(
        chosen["url"],
        chosen["model"],
        Engine(chosen["engine"]),
        window=chosen["window"],
        sampling=Sampling(chosen["temperature"], chosen["top_p"], chosen["top_k"]),
        token=chosen["token"],
        patience=chosen["patience"],
    )
    nodes = serving.open_sandbox(
        chosen["sandbox"],
        token=chosen["sandbox_token"],
        patience=chosen["patience"],
        slots=chosen["slots"],
        sessions=chosen["concurrency"],
    )
    async with nodes as sandbox, connect(connection, prompt) as model:
        with MathPool() as pool:
            toolbox = toolbox_of(prompt, sandbox)
            purifier = _purifier(chosen)
            bench = Bench(
                model,
                toolbox,
                prompt,
                standard_graders(sandbox, pool),
                RolloutBudget(chosen["turns"], chosen["tokens"], chosen["seconds"], chosen["lookahead"]),
                purifier,
                RewardScale(chosen["reward"]),
                chosen["seed"],
                chosen["retries"],
            )
            if isinstance(model, TokenModel):
                if purifier is not None and purifier.rescore:
                    model.gate(Key(), purifier.max_gap)  # refused at once where it would be refused later
                for note in model.chat.notes:
                    click.echo(f"note: {note}", err=True)
                model.chat.save_tokenizer(output)
            jobs = [
                (task, Key(chosen["run_name"], chosen["step"], task.id, number))
                for task in tasks
                for number in range(chosen["samples"])
            ]
            keys = {key for _, key in jobs}
            before = (trajectory for trajectory in journal.stored() if trajectory.key in keys)
            with Watch(len(jobs), before) as watch:
                await roll_out(jobs, bench.one, journal, concurrency=chosen["concurrency"], done=watch.add)
            return watch


def _purifier(chosen: dict[str, Any]) -> Purifier | None:
    mode = REPAIR[chosen["repair"]]
    if mode is None:
        return None
    policy = PurifyPolicy(
        attempts=chosen["attempts"],
        splice=SplicePolicy(threshold=chosen["threshold"]),
        probability=chosen["probability"],
        which=Which(chosen["which"]),
        unrepaired=Unrepaired(chosen["unrepaired"]),
    )
    return Purifier(mode, policy, Phase.TRAINING, chosen["rescore"])


def _tasks(sets: list[str], limit: int | None, seed: int) -> list[Task]:
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
        raise ValueError(f"{output} was begun with other settings: {listed}; choose another --out, or go on with these")

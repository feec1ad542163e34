"""Options of the commands that let a model work: which model, how it samples, and where it is served."""

from __future__ import annotations

import click

from cleaner_rl.cli.options import AT_LEAST_0, COUNT
from cleaner_rl.rollout.engines import Engine

model = click.option(
    "--model",
    required=True,
    help="Folder or hub name, for its tokenizer; with --engine chat the service's name for it.",
)
engine = click.option(
    "--engine",
    type=click.Choice([each.value for each in Engine]),
    default="vllm",
    show_default=True,
    help="What serves at --url; chat: any OpenAI-compatible API, text only.",
)
token = click.option("--token", envvar="CLEANER_ENGINE_TOKEN", help="For --url, if the engine wants one.")
temperature = click.option(
    "--temperature", type=AT_LEAST_0, default=1.0, show_default=True, help="1 to sample from the model itself."
)
window = click.option("--window", type=COUNT, help="The model's context, in tokens; default: what the server says.")
turns = click.option("--turns", type=COUNT, default=16, show_default=True, help="The most of one rollout.")
slots = click.option("--slots", type=COUNT, help="Of the sandbox that is started here.")
concurrency = click.option(
    "--concurrency", type=COUNT, default=64, show_default=True, help="Rollouts at the same time."
)
patience = click.option(
    "--patience",
    type=AT_LEAST_0,
    default=300.0,
    show_default=True,
    help="Seconds that a request waits for an engine or a sandbox that is away.",
)

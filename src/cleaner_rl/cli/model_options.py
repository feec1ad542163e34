"""Options of the commands that let a model work: which model, how it samples, and where it is served."""

from __future__ import annotations

from typing import Any

import click

from cleaner_rl.cli.options import AT_LEAST_0, COUNT
from cleaner_rl.cli.words import show
from cleaner_rl.rollout import Connection, EngineKind, RolloutRunner, Sampling, TokenModel
from cleaner_rl.tools import read_json

model = click.option(
    "--model",
    required=True,
    help="Folder or hub name of the model, for its tokenizer. With --engine chat, the service's name of the model.",
)
engine = click.option(
    "--engine",
    type=click.Choice([each.value for each in EngineKind]),
    default="vllm",
    show_default=True,
    help="Engine behind --url. chat is any OpenAI-compatible API, text only.",
)
token = click.option("--token", envvar="CLEANER_ENGINE_TOKEN", help="Token for --url, if the engine needs one.")
temperature = click.option(
    "--temperature",
    type=AT_LEAST_0,
    default=1.0,
    show_default=True,
    help="Sampling temperature; 1 samples from the model itself.",
)
top_k = click.option("--top-k", type=COUNT, help="Sample from the most likely tokens, this many. Default: all tokens.")
template = click.option(
    "--template",
    multiple=True,
    metavar="KEY=VALUE",
    help="Argument of the chat template, such as enable_thinking=false; the value is JSON, or text; repeatable.",
)
window = click.option("--window", type=COUNT, help="Context window in tokens. Default: what the server says.")
turns = click.option("--turns", type=COUNT, default=16, show_default=True, help="Turn budget of one rollout.")
concurrency = click.option(
    "--concurrency", type=COUNT, default=64, show_default=True, help="Rollouts that run at the same time."
)
patience = click.option(
    "--patience",
    type=AT_LEAST_0,
    default=300.0,
    show_default=True,
    help="Seconds that a request waits for an engine or a sandbox that does not answer.",
)


def connection(chosen: dict[str, Any]) -> Connection:
    """Return the model that the options name."""
    return Connection(
        chosen["url"],
        chosen["model"],
        EngineKind(chosen["engine"]),
        window=chosen["window"],
        sampling=Sampling(chosen["temperature"], chosen["top_p"], chosen["top_k"]),
        token=chosen["token"],
        patience=chosen["patience"],
        template=dict(map(_argument, chosen["template"])),
    )


def _argument(written: str) -> tuple[str, object]:
    """One argument of the chat template."""
    key, equals, value = written.partition("=")
    if not key or not equals:
        raise click.BadParameter(
            f"'{written}' is not KEY=VALUE, such as enable_thinking=false", param_hint="--template"
        )
    try:
        return key, read_json(value)
    except ValueError:
        return key, value


def sandbox(chosen: dict[str, Any]) -> dict[str, Any]:
    """Return which sandbox the options name, as arguments of `open_sandbox`."""
    return {
        "urls": chosen["sandbox"],
        "token": chosen["sandbox_token"],
        "patience": chosen["patience"],
        "sessions": chosen["concurrency"],
    }


def show_notes(runner: RolloutRunner[Any]) -> None:
    """Print what a person should know of the model's chat template."""
    for note in runner.model.chat.notes if isinstance(runner.model, TokenModel) else ():
        show(f"note: {note}", err=True)

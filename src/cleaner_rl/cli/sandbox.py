"""`cleaner sandbox`: the code sandbox from the command line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from cleaner_rl.cli import LazyGroup
from cleaner_rl.sandbox import Limits, NodeConfig, Tier
from cleaner_rl.sandbox.service import Keeper, ServiceConfig, UnsafeBindError, bind

TIERS = {f"T{tier.value}": tier for tier in Tier if tier is not Tier.NONE}


COMMANDS = {
    "bench": ("cleaner_rl.cli.sandbox_bench", "Measure what a call costs, beside a bare fork."),
    "check": ("cleaner_rl.cli.sandbox_check", "Attack a sandbox, harmlessly, and say what got through."),
}


@click.group(cls=LazyGroup, later=COMMANDS)
def sandbox() -> None:
    """Run model-written Python."""


@sandbox.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to bind to.")
@click.option("--port", default=8089, show_default=True, help="Port to bind to; 0: a free one.")
@click.option("--slots", default=NodeConfig().slots, show_default="two per core", help="Runs at the same time.")
@click.option(
    "--min-tier", type=click.Choice(list(TIERS)), default="T1", show_default=True, help="Refuse to start below it."
)
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Tokens and their quotas (TOML); needed to bind to an address that other machines reach.",
)
@click.option("--cpu-seconds", default=Limits().cpu_seconds, show_default=True, help="Of a call that names no limit.")
@click.option("--memory-mb", default=Limits().memory_mb, show_default=True, help="Of a call that names no limit.")
@click.option("--queue", default=65_536, show_default=True, help="Calls that may wait; more are answered 429.")
@click.option("--drain-seconds", default=30, show_default=True, help="How long runs may go on after SIGTERM.")
@click.option("--log-code", is_flag=True, help="Put the programs into the log.")
def serve(
    host: str,
    port: int,
    slots: int,
    min_tier: str,
    token_file: Path | None,
    cpu_seconds: float,
    memory_mb: int,
    queue: int,
    drain_seconds: int,
    log_code: bool,
) -> None:
    """Serve one node over HTTP.

    \b
    Example:
      cleaner sandbox serve --slots 32 &
      curl -s localhost:8089/v1/run -d '{"code": "print(1 + 1)"}'

    The first line says the tier and what the node can hold (also at /healthz); then comes one JSON line per call.
    """
    limits = Limits(cpu_seconds=cpu_seconds, memory_mb=memory_mb)
    node = NodeConfig(slots=slots, min_tier=TIERS[min_tier], limits=limits)
    # Defaults that the operator raised are meant: they lift the maxima too.
    maxima = replace(
        node.maxima,
        cpu_seconds=max(node.maxima.cpu_seconds, cpu_seconds),
        memory_mb=max(node.maxima.memory_mb, memory_mb),
    )
    config = ServiceConfig(
        replace(node, maxima=maxima),
        most_waiting=queue,
        token_file=token_file,
        log_code=log_code,
        drain_seconds=drain_seconds,
    )
    try:
        listening = bind(host, port, config)
    except (UnsafeBindError, OSError) as error:
        raise click.ClickException(str(error)) from None
    raise SystemExit(Keeper(listening, config).run())

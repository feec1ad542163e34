"""`cleaner-sandbox serve`: one node behind an HTTP address."""

from __future__ import annotations

from pathlib import Path

import click

from cleaner_sandbox import Limits, NodeConfig, Tier, find_environments
from cleaner_sandbox import serve as serve_node
from cleaner_sandbox.cli.options import COUNT, PORT, SECONDS
from cleaner_sandbox.cli.words import said

TIERS = {f"T{tier.value}": tier for tier in Tier if tier is not Tier.NONE}


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to bind to.")
@click.option("--port", type=PORT, default=8089, show_default=True, help="Port to bind to; 0: a free one.")
@click.option(
    "--slots",
    type=COUNT,
    default=NodeConfig().slots,
    show_default="two per core that it may use",
    help="Programs that run at the same time.",
)
@click.option(
    "--min-tier",
    type=click.Choice(list(TIERS)),
    default="T1",
    show_default=True,
    help="Refuse to start below this isolation tier.",
)
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Tokens and their quotas (TOML); needed to bind to an address that other machines reach.",
)
@click.option(
    "--env",
    "environments",
    metavar="NAME",
    multiple=True,
    help="Also offer this environment: `data` (pandas and matplotlib, of the extra cleaner-sandbox[data]), or what "
    "`cleaner-sandbox env build` has made, by name, pattern or path.",
)
@click.option(
    "--cpu-seconds",
    type=SECONDS,
    default=Limits().cpu_seconds,
    show_default=True,
    help="CPU time of a call that names no limit.",
)
@click.option(
    "--memory-mb",
    type=COUNT,
    default=Limits().memory_mb,
    show_default=True,
    help="Memory of a call that names no limit.",
)
@click.option(
    "--sessions",
    type=COUNT,
    default=NodeConfig().sessions,
    show_default=True,
    help="Sessions open at once: one per rollout that keeps state; more wait.",
)
@click.option(
    "--session-memory-mb",
    type=COUNT,
    default=NodeConfig().session_memory_mb,
    show_default=True,
    help="Memory of all sessions together; above it, those idle for longest are closed.",
)
@click.option(
    "--session-idle-seconds",
    type=SECONDS,
    default=NodeConfig().session_idle,
    show_default=True,
    help="Most seconds that a session may be idle.",
)
@click.option(
    "--session-ttl-seconds",
    type=SECONDS,
    default=NodeConfig().session_ttl,
    show_default=True,
    help="Most seconds that a session may be open, idle or not.",
)
@click.option(
    "--queue", type=COUNT, default=65_536, show_default=True, help="Calls that may wait; more are answered 429."
)
@click.option(
    "--drain-seconds",
    type=click.IntRange(min=0),
    default=30,
    show_default=True,
    help="How long runs may go on after SIGTERM.",
)
@click.option("--log-code", is_flag=True, help="Write the programs to the log.")
def serve(
    host: str,
    port: int,
    slots: int,
    min_tier: str,
    token_file: Path | None,
    environments: tuple[str, ...],
    cpu_seconds: float,
    memory_mb: int,
    sessions: int,
    session_memory_mb: int,
    session_idle_seconds: float,
    session_ttl_seconds: float,
    queue: int,
    drain_seconds: int,
    log_code: bool,
) -> None:
    """Serve one node over HTTP.

    \b
    Example:
      cleaner-sandbox serve --slots 32 &
      curl -s --retry 9 --retry-connrefused localhost:8089/v1/run -d '{"code": "print(1 + 1)"}'
      cleaner-sandbox serve --env data                      # programs that import pandas or matplotlib find it loaded
      cleaner-sandbox serve --env web --env 'repo-*'        # what `cleaner-sandbox env build` has made

    The first line says the tier and what the node can hold (also at /healthz); then comes one JSON line per call.
    """
    limits = Limits(cpu_seconds=cpu_seconds, memory_mb=memory_mb)
    try:
        found = find_environments(environments)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--env") from None
    node = NodeConfig(
        slots=slots,
        environments=tuple(dict.fromkeys((*NodeConfig().environments, *found))),
        min_tier=TIERS[min_tier],
        limits=limits,
        maxima=NodeConfig().maxima.raised(limits),  # defaults that the operator raised are meant
        sessions=sessions,
        session_memory_mb=session_memory_mb,
        session_idle=session_idle_seconds,
        session_ttl=session_ttl_seconds,
    )
    try:
        code = serve_node(
            node,
            host=host,
            port=port,
            token_file=token_file,
            most_waiting=queue,
            log_code=log_code,
            drain_seconds=drain_seconds,
        )
    except (ImportError, OSError, ValueError) as error:
        raise click.ClickException(said(error)) from None
    raise SystemExit(code)

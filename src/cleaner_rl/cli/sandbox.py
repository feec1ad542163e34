"""`cleaner sandbox`: the code sandbox from the command line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from cleaner_rl.cli import Later, LazyGroup
from cleaner_rl.cli.options import COUNT, PORT, SECONDS, ray_address
from cleaner_rl.cli.words import said
from cleaner_rl.sandbox import Limits, NodeConfig, PreloadSet, Tier
from cleaner_rl.sandbox.requirements import RequirementsError, cache_folder, install
from cleaner_rl.sandbox.service import Keeper, ServiceConfig, UnsafeBindError, bind

TIERS = {f"T{tier.value}": tier for tier in Tier if tier is not Tier.NONE}


COMMANDS = {
    "bench": Later("cleaner_rl.cli.sandbox_bench", "Measure what a call costs, beside a bare fork."),
    "check": Later("cleaner_rl.cli.sandbox_check", "Attack a sandbox, harmlessly, and say what got through."),
}


@click.group(cls=LazyGroup, later=COMMANDS)
def sandbox() -> None:
    """Run model-written Python."""


@sandbox.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to bind to.")
@click.option("--port", type=PORT, default=8089, show_default=True, help="Port to bind to; 0: a free one.")
@click.option(
    "--slots",
    type=COUNT,
    default=NodeConfig().slots,
    show_default="two per core that it may use",
    help="Runs at the same time.",
)
@click.option(
    "--min-tier", type=click.Choice(list(TIERS)), default="T1", show_default=True, help="Refuse to start below it."
)
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Tokens and their quotas (TOML); needed to bind to an address that other machines reach.",
)
@click.option(
    "--set",
    "sets",
    metavar="NAME=FILE",
    multiple=True,
    help="One more preload set, from a requirements file; installed once, with this interpreter's pip.",
)
@click.option(
    "--set-folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=cache_folder(),
    show_default=True,
    help="Where sets are installed.",
)
@click.option(
    "--cpu-seconds",
    type=SECONDS,
    default=Limits().cpu_seconds,
    show_default=True,
    help="Of a call that names no limit.",
)
@click.option(
    "--memory-mb", type=COUNT, default=Limits().memory_mb, show_default=True, help="Of a call that names no limit."
)
@click.option(
    "--sessions",
    type=COUNT,
    default=NodeConfig().sessions,
    show_default=True,
    help="Open at once: as many as rollouts that keep state; more wait.",
)
@click.option(
    "--session-memory-mb",
    type=COUNT,
    default=NodeConfig().session_memory_mb,
    show_default=True,
    help="All sessions together; above it, those idle for longest are closed.",
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
@click.option("--log-code", is_flag=True, help="Put the programs into the log.")
def serve(
    host: str,
    port: int,
    slots: int,
    min_tier: str,
    token_file: Path | None,
    sets: tuple[str, ...],
    set_folder: Path,
    cpu_seconds: float,
    memory_mb: int,
    sessions: int,
    session_memory_mb: int,
    queue: int,
    drain_seconds: int,
    log_code: bool,
) -> None:
    """Serve one node over HTTP.

    \b
    Example:
      cleaner sandbox serve --slots 32 &
      curl -s --retry 9 --retry-connrefused localhost:8089/v1/run -d '{"code": "print(1 + 1)"}'
      cleaner sandbox serve --set data=requirements.txt     # programs that import pandas find it loaded

    The first line says the tier and what the node can hold (also at /healthz); then comes one JSON line per call.
    """
    limits = Limits(cpu_seconds=cpu_seconds, memory_mb=memory_mb)
    preload = (*NodeConfig().preload, *_installed(sets, set_folder))
    node = NodeConfig(
        slots=slots,
        preload=preload,
        min_tier=TIERS[min_tier],
        limits=limits,
        sessions=sessions,
        session_memory_mb=session_memory_mb,
    )
    # Defaults that the operator raised are meant: they lift the maxima too.
    maxima = replace(
        node.maxima,
        cpu_seconds=max(node.maxima.cpu_seconds, cpu_seconds),
        memory_mb=max(node.maxima.memory_mb, memory_mb),
    )
    config = ServiceConfig(
        replace(node, maxima=maxima),
        most_waiting=queue,
        token_file=None if token_file is None else str(token_file.resolve()),
        log_code=log_code,
        drain_seconds=drain_seconds,
    )
    try:
        listening = bind(host, port, config)
    except UnsafeBindError as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(f"{host}:{port} can't be bound to: {said(error)}") from None
    raise SystemExit(Keeper(listening, config).run())


def _installed(sets: tuple[str, ...], folder: Path) -> list[PreloadSet]:
    """The sets that were asked for as NAME=FILE."""
    found: list[PreloadSet] = []
    taken = {each.name for each in NodeConfig().preload}
    for text in sets:
        name, equals, file = text.partition("=")
        if not equals or name in taken:
            wrong = f"there is a set '{name}' already" if equals else "it takes a name and a requirements file"
            raise click.BadParameter(f"{text}: {wrong}, such as --set data=requirements.txt", param_hint="--set")
        taken.add(name)
        try:
            found.append(install(name, Path(file), folder))
        except (RequirementsError, OSError) as error:
            raise click.ClickException(str(error)) from None
    return found


@sandbox.command()
@click.option("--ray", "on_ray", is_flag=True, required=True, help="On the machines of a Ray cluster.")
@ray_address
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="As for serve; at the same path on every machine.",
)
@click.option("--slots", type=COUNT, help="Of each node; two per core of its machine if not given.")
@click.option("--sessions", type=COUNT, help="Of each node, open at once; as serve has them if not given.")
def up(
    on_ray: bool,  # noqa: ARG001  # --ray says where
    ray_address: str | None,
    token_file: Path,
    slots: int | None,
    sessions: int | None,
) -> None:
    """Have a node on every machine of a cluster, kept alive by it.

    \b
    Example:
      cleaner sandbox up --ray --token-file /shared/tokens.toml

    Machines that have one keep it. Clients find the nodes as "ray:".
    """
    ray, nodes = _ray(ray_address)
    for machine, (url, tier) in nodes.up(nodes.options_for(token_file, slots, sessions)).items():
        click.echo(f"{machine}  {url}  T{tier}")
    ray.shutdown()


@sandbox.command()
@click.option("--ray", "on_ray", is_flag=True, required=True, help="On the machines of a Ray cluster.")
@ray_address
def down(on_ray: bool, ray_address: str | None) -> None:  # noqa: ARG001
    """End all nodes of a cluster.

    \b
    Example:
      cleaner sandbox down --ray
    """
    ray, nodes = _ray(ray_address)
    click.echo(f"{nodes.down()} nodes ended")
    ray.shutdown()


def _ray(address: str | None) -> tuple[Any, ModuleType]:
    from cleaner_rl.sandbox import on_ray

    try:
        import ray
    except ImportError:
        raise click.ClickException("Ray is not installed here: pip install ray") from None
    try:
        ray.init(address=address or "auto", namespace=on_ray.NAMESPACE, logging_level="ERROR")
    except ConnectionError as error:
        raise click.ClickException(str(error)) from None
    return ray, on_ray

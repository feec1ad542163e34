"""`cleaner-sandbox up` and `down`: nodes on the machines of a Ray cluster."""

from __future__ import annotations

from pathlib import Path

import click

from cleaner_sandbox import start_on_ray, stop_on_ray
from cleaner_sandbox.cli.options import COUNT, ray_address
from cleaner_sandbox.cli.words import show


@click.command()
@click.option("--ray", "on_ray", is_flag=True, required=True, help="On the machines of a Ray cluster.")
@ray_address
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="Token file as for serve, at the same path on every machine.",
)
@click.option("--slots", type=COUNT, help="Slots per node; default: two per core of its machine.")
@click.option("--sessions", type=COUNT, help="Sessions open at once, per node; default: as for serve.")
def up(
    on_ray: bool,  # noqa: ARG001  # --ray says where
    ray_address: str | None,
    token_file: Path,
    slots: int | None,
    sessions: int | None,
) -> None:
    """Start a node on every machine of a Ray cluster, which keeps it alive.

    \b
    Example:
      cleaner-sandbox up --ray --token-file /shared/tokens.toml

    A machine that has a node keeps it. Clients find the nodes as "ray:".
    """
    try:
        nodes = start_on_ray(token_file, slots=slots, sessions=sessions, address=ray_address)
    except (ImportError, ConnectionError) as error:
        raise click.ClickException(str(error)) from None
    for machine, (url, tier) in nodes.items():
        show(f"{machine}  {url}  T{tier}")


@click.command()
@click.option("--ray", "on_ray", is_flag=True, required=True, help="On the machines of a Ray cluster.")
@ray_address
def down(on_ray: bool, ray_address: str | None) -> None:  # noqa: ARG001
    """End all nodes of a Ray cluster.

    \b
    Example:
      cleaner-sandbox down --ray
    """
    try:
        ended = stop_on_ray(ray_address)
    except (ImportError, ConnectionError) as error:
        raise click.ClickException(str(error)) from None
    show(f"{ended} nodes ended")

"""`cleaner-sandbox serve`: one node behind an HTTP address."""

from __future__ import annotations

from pathlib import Path

import click

from cleaner_sandbox import DATA, Limits, NodeConfig, Tier
from cleaner_sandbox import serve as serve_node
from cleaner_sandbox import set_folder as default_set_folder
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
    "--set",
    "sets",
    metavar="NAME=FILE",
    multiple=True,
    help="One more preload set, from a requirements file; installed once, with this interpreter's pip. "
    "`data` without a file: pandas and matplotlib, of the extra cleaner-sandbox[data].",
)
@click.option(
    "--set-folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=default_set_folder(),
    show_default=True,
    help="Where sets are installed.",
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
    "--bases",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of bases: folders and tar files that sessions can begin with.",
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
    sets: tuple[str, ...],
    set_folder: Path,
    cpu_seconds: float,
    memory_mb: int,
    sessions: int,
    session_memory_mb: int,
    bases: Path | None,
    queue: int,
    drain_seconds: int,
    log_code: bool,
) -> None:
    """Serve one node over HTTP.

    \b
    Example:
      cleaner-sandbox serve --slots 32 &
      curl -s --retry 9 --retry-connrefused localhost:8089/v1/run -d '{"code": "print(1 + 1)"}'
      cleaner-sandbox serve --set data                      # programs that import pandas or matplotlib find it loaded
      cleaner-sandbox serve --set web=requirements.txt      # and what you list yourself

    The first line says the tier and what the node can hold (also at /healthz); then comes one JSON line per call.
    """
    limits = Limits(cpu_seconds=cpu_seconds, memory_mb=memory_mb)
    files = _files(sets)
    preload = NodeConfig().preload
    node = NodeConfig(
        slots=slots,
        preload=(*preload, DATA) if DATA.name in sets else preload,
        min_tier=TIERS[min_tier],
        limits=limits,
        maxima=NodeConfig().maxima.raised(limits),  # defaults that the operator raised are meant
        sessions=sessions,
        session_memory_mb=session_memory_mb,
        bases=bases,
    )
    try:
        code = serve_node(
            node,
            host=host,
            port=port,
            token_file=token_file,
            sets=files,
            sets_in=set_folder,
            most_waiting=queue,
            log_code=log_code,
            drain_seconds=drain_seconds,
        )
    except (ImportError, OSError, ValueError) as error:
        raise click.ClickException(said(error)) from None
    raise SystemExit(code)


def _files(sets: tuple[str, ...]) -> dict[str, Path]:
    """The requirements files that were given as NAME=FILE."""
    found: dict[str, Path] = {}
    ours = {each.name for each in NodeConfig().preload} | ({DATA.name} & {*sets})
    for text in sets:
        if text == DATA.name:
            continue
        name, equals, file = text.partition("=")
        if not equals or name in found or name in ours:
            wrong = f"there is a set '{name}' already" if equals else "it takes a name and a requirements file"
            raise click.BadParameter(f"{text}: {wrong}, such as --set web=requirements.txt", param_hint="--set")
        found[name] = Path(file)
    return found

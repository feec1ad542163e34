"""`cleaner-sandbox mcp`: the sandbox for clients of the Model Context Protocol."""

from __future__ import annotations

from pathlib import Path

import click

from cleaner_sandbox import SandboxUnavailableError, serve_mcp
from cleaner_sandbox.cli import options
from cleaner_sandbox.cli.words import said, show


@click.command()
@click.option(
    "--http",
    metavar="HOST:PORT",
    help="Serve streamable HTTP here, at the path /mcp. A port alone is one on 127.0.0.1; port 0: a free one. Default: "
    "serve one client at stdin and stdout.",
)
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Tokens and their quotas (TOML); needed to bind to an address that other machines reach.",
)
@options.sandbox
@options.sandbox_token
def mcp(http: str | None, token_file: Path | None, sandbox: tuple[str, ...], sandbox_token: str | None) -> None:
    """Serve the sandbox to clients of the Model Context Protocol (MCP).

    Clients get tools that run Python and bash, and sessions that keep their state and can be rolled back.

    \b
    Examples:
      cleaner-sandbox mcp                                   # a desktop client starts this itself
      cleaner-sandbox mcp --http 8090                       # for clients on this machine
      cleaner-sandbox mcp --http 0.0.0.0:8090 --token-file tokens.toml
      cleaner-sandbox mcp --sandbox http://127.0.0.1:8089   # programs run on a node that is served already
    """
    if token_file is not None and http is None:
        raise click.UsageError("--token-file is for callers over HTTP: give --http HOST:PORT too")
    try:
        serve_mcp(
            sandbox,
            token=sandbox_token,
            http=None if http is None else _address(http),
            token_file=token_file,
            ready=lambda address: show(f"{address}  (Ctrl-C ends it)"),
        )
    except (ImportError, OSError, SandboxUnavailableError, ValueError) as error:
        raise click.ClickException(said(error)) from None


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65_535:
        raise click.BadParameter(f"{text!r} has no port, such as in 127.0.0.1:8090", param_hint="--http")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)

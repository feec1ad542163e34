"""`cleaner-sandbox check`: is this sandbox one?"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from cleaner_sandbox import Tier
from cleaner_sandbox.cli import options
from cleaner_sandbox.cli.words import show


@click.command()
@click.option("--tier", type=click.Choice(["T1", "T2", "T3"]), help="Default: the highest that works here, without T3.")
@options.sandbox
@options.sandbox_token
@click.option("--only", metavar="PATTERN", default="*", help="Attacks whose name matches, such as 'net_*'.")
@click.option(
    "--proof/--no-proof",
    default=True,
    show_default=True,
    help="Also try the attacks with isolation off, in a throw-away environment.",
)
@click.option("--layers", is_flag=True, help="Also try them at T2 with each layer left out in turn.")
@options.as_json
def check(
    tier: str | None,
    sandbox: tuple[str, ...],
    sandbox_token: str | None,
    only: str,
    proof: bool,
    layers: bool,
    as_json: bool,
) -> None:
    """Run harmless attacks on a sandbox, and report what got through.

    Exits with 1 if anything escaped, leaked, or got a wrong verdict.

    \b
    Examples:
      cleaner-sandbox check
      cleaner-sandbox check --sandbox http://127.0.0.1:8089 --no-proof
      cleaner-sandbox check --only 'dodge_*' --tier T1 --json
    """
    from cleaner_sandbox.check import check as check_sandbox  # a thousand lines of attacks, for this command alone

    try:
        report = check_sandbox(
            tier=Tier[tier] if tier else None,
            urls=sandbox,
            token=sandbox_token,
            only=only,
            proof=proof,
            layers=layers,
            watch=_bar,
        )
    except (ImportError, LookupError, OSError, RuntimeError) as error:
        raise click.ClickException(error.args[0] if isinstance(error, LookupError) else str(error)) from None
    show(json.dumps(report.to_json()) if as_json else report.as_table())
    sys.exit(1 if report.breached else 0)


@contextmanager
def _bar(stage: str, attacks: int) -> Iterator[Callable[[object], None]]:
    hidden = not sys.stderr.isatty()
    with click.progressbar(length=attacks, label=f"{stage:14}", file=sys.stderr, hidden=hidden) as bar:
        yield lambda _: bar.update(1)

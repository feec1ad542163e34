"""`cleaner sandbox check`: is this sandbox one?"""

from __future__ import annotations

import asyncio
import fnmatch
import json
import os
import sys
from collections.abc import Coroutine, Sequence
from typing import Any

import click

from cleaner_rl.cli import options
from cleaner_rl.cli.answering import NoSandboxError, must_answer
from cleaner_rl.sandbox.check import ATTACKS, Attack, Report, Verdict, check_node, check_target, try_layers, try_without
from cleaner_rl.sandbox.check.suite import Done, layer_trials
from cleaner_rl.sandbox.client import SandboxClient
from cleaner_rl.sandbox.signals import ended_by_signals
from cleaner_rl.sandbox.tiers import Tier, TierError

REMOTE_NOTE = "Over HTTP it isn't seen whether a process or file was left on the node, nor whether its memory grew."
NO_ROOT_NOTE = "Not root: the attacks were not tried with isolation off."


@click.command()
@click.option("--tier", type=click.Choice(["T1", "T2"]), help="Default: the highest that works here.")
@options.sandbox
@options.sandbox_token
@click.option("--only", metavar="PATTERN", default="*", help="Attacks whose name matches, such as 'net_*'.")
@click.option(
    "--proof/--no-proof",
    default=True,
    show_default=True,
    help="Also try the attacks with isolation off, in a throw-away world.",
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
    """Attack a sandbox, harmlessly, and say what got through.

    Exits with 1 if anything escaped, leaked, or got a wrong verdict.

    \b
    Examples:
      cleaner sandbox check
      cleaner sandbox check --sandbox http://127.0.0.1:8089 --no-proof
      cleaner sandbox check --only 'dodge_*' --tier T1 --json
    """
    attacks = [attack for attack in ATTACKS if fnmatch.fnmatch(attack.name, only)]
    if not attacks:
        raise click.ClickException(f"no attack is called {only}; names begin with: {', '.join(_kinds())}")
    try:
        with ended_by_signals():  # what was planted is taken away
            report = _report(Tier[tier] if tier else None, sandbox, sandbox_token, attacks)
            if proof and os.geteuid() == 0:
                report.trials = _watched("isolation off", len(attacks), try_without, attacks)
            elif proof:
                report.notes = (*report.notes, NO_ROOT_NOTE)
            if layers:
                # An attack that fails with all layers off isn't stopped by any of them.
                without = report.trials.get("none")
                tried = attacks if without is None else [each.attack for each in without if not each.contained]
                report.trials |= _watched("layers", len(tried) * len(layer_trials()), try_layers, tried)
    except (NoSandboxError, TierError, OSError, RuntimeError) as error:
        raise click.ClickException(str(error)) from None
    click.echo(json.dumps(report.as_json()) if as_json else report.as_table())
    sys.exit(1 if report.breached else 0)


def _kinds() -> list[str]:
    return sorted({attack.name.split("_")[0] for attack in ATTACKS})


def _report(tier: Tier | None, nodes: Sequence[str], token: str | None, attacks: Sequence[Attack]) -> Report:
    if nodes:

        async def remote(some: Sequence[Attack], done: Done) -> list[Verdict]:
            async with SandboxClient(nodes, token=token, patience=60.0) as client:
                await must_answer(client, nodes)
                return await check_target(client, some, done)

        return Report("remote", _watched("remote", len(attacks), remote, attacks), notes=(REMOTE_NOTE,))
    found, verdicts = _watched("attacks", len(attacks), lambda some, done: check_node(tier, some, done), attacks)
    return Report(found.name, verdicts)


def _watched(label: str, length: int, work: Any, attacks: Sequence[Attack]) -> Any:
    """Do something with the attacks, with a bar on a terminal."""
    with click.progressbar(length=length, label=f"{label:14}", file=sys.stderr, hidden=not sys.stderr.isatty()) as bar:

        def done(_: Verdict) -> None:
            bar.update(1)

        doing: Coroutine[Any, Any, Any] = work(attacks, done)
        return asyncio.run(doing)

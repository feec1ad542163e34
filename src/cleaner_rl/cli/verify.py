"""`cleaner verify`: run the calls of a store again."""

from __future__ import annotations

import json
import sys

import click

from cleaner_rl.cli import options as shared
from cleaner_rl.cli.words import show
from cleaner_rl.logs import Reading
from cleaner_rl.purify import ReplayFaultError
from cleaner_rl.replay import ReplayReport, ReplaySettings, TextMatch
from cleaner_rl.replay import verify as verify_store
from cleaner_rl.tools import call_format_names
from cleaner_rl.trajectory.store import StoreError


@click.command()
@click.argument("store", type=click.Path(exists=True))
@click.option(
    "--session/--fresh",
    default=None,
    help="One interpreter per trajectory, or one per call. Default: as recorded; for logs, both are tried.",
)
@click.option(
    "--text-match",
    type=click.Choice([each.value for each in TextMatch]),
    default=ReplaySettings().text_match.value,
    show_default=True,
    help="For logs: compare printed text exactly, or without line breaks at its end.",
)
@click.option("--echo/--no-echo", default=None, help="Show the value of a last expression. Default: only in sessions.")
@click.option("--python-tool", multiple=True, metavar="NAME", help="For logs: a tool that runs Python; repeatable.")
@click.option(
    "--calls",
    type=click.Choice(call_format_names()),
    help="For logs: format of calls in text, if `cleaner purify` was given one.",
)
@shared.sandbox
@shared.sandbox_token
@shared.as_json
def verify(
    store: str,
    session: bool | None,
    text_match: str,
    echo: bool | None,
    python_tool: tuple[str, ...],
    calls: str | None,
    sandbox: tuple[str, ...],
    sandbox_token: str | None,
    as_json: bool,
) -> None:
    """Run the calls of a store's trajectories again, and say which give what the store says they gave.

    Exits with 1 if a trajectory is different. A trajectory is nondeterministic if two replays differ from each other:
    then its results can be neither confirmed nor refuted.

    \b
    Examples:
      cleaner verify runs/7/trajectories
      cleaner verify clean/store --fresh --json
    """
    reading = Reading(tuple(python_tool), calls)
    settings = ReplaySettings(session, TextMatch(text_match), echo, sandbox, sandbox_token, reading)
    shown = sys.stderr.isatty()

    def progress(done: int) -> None:
        if shown:
            click.echo(f"\rreplayed {done:,}", nl=False, err=True)

    try:
        report = verify_store(store, settings, progress=progress)
    except (StoreError, ReplayFaultError) as error:
        raise click.ClickException(str(error)) from None
    finally:
        if shown:
            click.echo(err=True)
    show(json.dumps(report.to_json()) if as_json else _text(report))
    sys.exit(1 if report.different else 0)


def _text(report: ReplayReport) -> str:
    lines = [f"{count:8,} {verdict}" for verdict, count in report.verdicts.most_common()]
    lines += [f"{count:8,} not replayable: {reason}" for reason, count in report.not_replayable.most_common()]
    for each in report.different:
        told = each.to_json()
        lines.append(f"different: {told.pop('key')}: {json.dumps(told, ensure_ascii=False)}")
    return "\n".join(lines)

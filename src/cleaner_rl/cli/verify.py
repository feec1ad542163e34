"""`cleaner verify`: does a store still say the truth?"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import click

from cleaner_rl.cli import options as shared
from cleaner_rl.cli.replay_settings import NO_SANDBOX, Replaying, Words
from cleaner_rl.purify import ReplayFaultError, ReplayVerdict
from cleaner_rl.purify.logs.formats import Reading
from cleaner_rl.tools import ToolResult, call_format_names
from cleaner_rl.trajectory.store import StoreError, read

TOGETHER = 64
SHOWN = 200


@click.command()
@click.argument("store", type=click.Path(exists=True))
@click.option(
    "--session/--fresh",
    default=None,
    help="One interpreter a trajectory, or a call; default: as recorded; logs one a call; if that differs, the other.",
)
@click.option(
    "--words", type=click.Choice([each.value for each in Words]), default="trimmed", show_default=True, help="Of logs."
)
@click.option("--echo/--no-echo", default=None, help="Show the value of a last expression; default: in sessions.")
@click.option("--python-tool", multiple=True, metavar="NAME", help="Of logs: a tool that runs Python.")
@click.option(
    "--calls",
    type=click.Choice(call_format_names()),
    help="Of logs: the format of calls that stand in text, as it was imported with.",
)
@shared.sandbox
@shared.sandbox_token
@shared.as_json
def verify(
    store: str,
    session: bool | None,
    words: str,
    echo: bool | None,
    python_tool: tuple[str, ...],
    calls: str | None,
    sandbox: tuple[str, ...],
    sandbox_token: str | None,
    as_json: bool,
) -> None:
    """Replay the Python of a store's trajectories, cell by cell, and say which give what they say they gave.

    Exits with 1 if any is different. What is nondeterministic (two replays disagree with each other) can be neither
    proven nor refuted; it is counted.

    \b
    Examples:
      cleaner verify runs/7/trajectories
      cleaner verify clean/store --fresh --json
    """
    try:
        from cleaner_rl.cli.replaying import Replayer
    except ImportError:
        raise click.ClickException(NO_SANDBOX) from None
    reading = Reading(tuple(python_tool), calls)
    settings = Replaying(session, Words(words), echo, sandbox, sandbox_token, reading)
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    different: list[dict[str, Any]] = []
    shown = sys.stderr.isatty()
    try:
        with (
            Replayer(settings) as replayer,
            click.progressbar(_batches(store), label="replaying", file=sys.stderr, hidden=not shown) as batches,
        ):
            for batch in batches:
                for trajectory, found in zip(batch, replayer.replay_all(batch), strict=True):
                    counts[str(found.verdict)] += 1
                    if found.verdict == ReplayVerdict.DIFFERENT:
                        different.append({"key": _key(trajectory), **_told(found)})
                    elif found.reason:
                        reasons[found.reason] += 1
    except (StoreError, ReplayFaultError) as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        click.echo(json.dumps({"verdicts": counts, "not_replayable": reasons, "different": different}))
    else:
        _print(counts, reasons, different)
    sys.exit(1 if different else 0)


def _batches(store: str) -> Iterator[list[Any]]:
    trajectories = read(store)
    while batch := list(islice(trajectories, TOGETHER)):
        yield batch


def _key(trajectory: Any) -> str:
    key = trajectory.key
    return f"{key.run}/{key.step}/{key.task}/{key.rollout}"


def _told(found: Any) -> dict[str, Any]:
    if found.difference is None:
        return {"why": found.reason}
    one = found.difference
    return {"turn": one.turn, "call": one.call, "recorded": _shown(one.recorded), "replayed": _shown(one.replayed)}


def _shown(result: ToolResult) -> dict[str, Any]:
    exception = result.exception
    text = {"output": result.output[:SHOWN], "stderr": result.stderr[:SHOWN], "explanation": result.explanation}
    if exception is not None:
        text["exception"] = f"{exception.type}: {exception.message[:SHOWN]}"
    return {"status": result.status, **{name: value for name, value in text.items() if value}}


def _print(counts: Counter[str], reasons: Counter[str], different: list[dict[str, Any]]) -> None:
    for verdict, count in counts.most_common():
        click.echo(f"{count:8,} {verdict}")
    for reason, count in reasons.most_common():
        click.echo(f"{count:8,} not replayable: {reason}")
    for each in different:
        click.echo(f"different: {each.pop('key')}: {json.dumps(each, ensure_ascii=False)}")

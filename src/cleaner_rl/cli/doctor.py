"""`cleaner doctor`: what this machine can do, and what to do about what it can't."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import click

from cleaner_rl.cli import options
from cleaner_rl.cli.words import show
from cleaner_rl.doctor import Check, State, diagnose

COLOURS = {State.OK: "green", State.LESS: "yellow", State.MISSING: "cyan", State.WRONG: "red"}


@click.command()
@click.option("--model", "models", multiple=True, help="A folder, hub name or address of a server; repeatable.")
@options.prompt
@options.sandbox
@options.sandbox_token
@options.ray_address
@options.as_json
def doctor(
    models: tuple[str, ...],
    prompt: str,
    sandbox: tuple[str, ...],
    sandbox_token: str | None,
    ray_address: str | None,
    as_json: bool,
) -> None:
    """Say what this machine can do, and what to do about what it can't.

    Ends with 1 if something that was asked for, or is installed, doesn't work; missing optional parts aren't errors.

    \b
    Examples:
      cleaner doctor
      cleaner doctor --model Qwen/Qwen3-4B --model http://127.0.0.1:8000 --sandbox http://127.0.0.1:8089
    """
    try:
        checks = diagnose(
            models, prompt=prompt, sandboxes=sandbox, sandbox_token=sandbox_token, ray_address=ray_address
        )
    except (LookupError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    done = []
    for each in checks:
        done.append(each)
        if not as_json:
            _show(each)
    wrong = any(each.state is State.WRONG for each in done)
    if as_json:
        show(json.dumps({"ok": not wrong, "checks": [asdict(each) for each in done]}))
    sys.exit(1 if wrong else 0)


def _show(check: Check) -> None:
    state = click.style(f"{check.state:8}", fg=COLOURS[check.state], bold=check.state is State.WRONG)
    click.echo(state, nl=False)
    show(f"{check.name:11} {check.found}")
    if check.remedy:
        show(f"{'':20}→ {check.remedy}")

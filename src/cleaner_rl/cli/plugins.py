"""`cleaner plugins`: what is installed, whose it is, and what is wrong with it."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from cleaner_rl.purify.logs.formats import LOG_ADAPTERS
from cleaner_rl.purify.similarity import SIMILARITY_MEASURES
from cleaner_rl.rollout.toolboxes import TOOLS
from cleaner_rl.tasks import GRADERS, TASK_LOADERS
from cleaner_rl.tools.formats import CALL_FORMATS
from cleaner_rl.tools.plugins import Installed, PluginError, Plugins

KINDS: tuple[Plugins[Any], ...] = (CALL_FORMATS, SIMILARITY_MEASURES, GRADERS, TASK_LOADERS, LOG_ADAPTERS, TOOLS)
TAKEN = "the name is taken by one of ours, which is used instead; give yours another"


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one object.")
def plugins(as_json: bool) -> None:
    """List call formats, similarity measures, graders, data sets, log formats and tools, and check those of others.

    Those of other packages are loaded; one that can't be is listed with the reason, and the command exits with 1. Tools
    may need a prompt's options, so they are only listed.

    \b
    Examples:
      cleaner plugins
      cleaner plugins --json
    """
    found = [
        {
            "group": kind.group,
            "name": each.name,
            "package": each.package,
            "from": each.value,
            "problem": _problem(kind, each),
        }
        for kind in KINDS
        for each in kind.installed()
    ]
    broken = [each for each in found if each["problem"]]
    if as_json:
        click.echo(json.dumps({"plugins": found, "broken": len(broken)}))
    else:
        for kind in KINDS:
            click.echo(kind.group)
            for each in found:
                if each["group"] == kind.group:
                    click.echo(
                        f"  {each['name']:18} {each['package']}{' · ' if each['problem'] else ''}{each['problem']}"
                    )
    sys.exit(1 if broken else 0)


def _problem(kind: Plugins[Any], each: Installed) -> str:
    """What is wrong with it; empty if nothing is, or if it is ours."""
    if each.is_ours or kind is TOOLS:
        return ""
    if each.name in kind.ours:
        return TAKEN
    try:
        kind.load(each.name)
    except PluginError as error:
        return str(error)
    return ""
